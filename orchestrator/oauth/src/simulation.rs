//! Simulated lives of grants against a server that rotates refresh tokens and revokes the family of
//! a reused token, with a crash at every step.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;

use goondan_protocol::call::TokenVerdict;
use goondan_protocol::control::{ErrorCode, GrantState};
use goondan_protocol::ids::{LoginId, ResourceName, WorkspaceId};
use goondan_protocol::oauth::{
    ClientAuth, Endpoints, FormRequest, OAuthApp, OAuthNeed, Reply, Token, TokenErrorResponse,
};
use goondan_protocol::secret::SecretValue;
use goondan_protocol::time::Timestamp;

use crate::machine::DocumentWork;
use crate::{
    DocumentKey, Documents, ENTROPY_BYTES, Fields, GrantAnswer, GrantKey, OAuthEffect,
    OAuthMachine, RejectionOutcome, ServerRequest, ServerResponse, WaiterId,
};

const LIFE_S: u64 = 1_000;

#[derive(Default)]
struct SimulatedAuthServer {
    next: u64,
    /// The valid refresh token; `None` if the family is revoked.
    refresh: Option<String>,
    spent: BTreeSet<String>,
    access: Option<String>,
    requests: usize,
    challenge: Option<String>,
    /// True if refresh tokens are not rotated.
    keeps_refresh: bool,
    codes: BTreeSet<String>,
}

impl SimulatedAuthServer {
    fn grant(&mut self) -> ServerResponse {
        self.next += 1;
        let (access, refresh) = (format!("a{}", self.next), format!("r{}", self.next));
        self.access = Some(access.clone());
        self.refresh = Some(refresh.clone());
        ServerResponse::Token(Reply::Granted(Token {
            access_token: SecretValue::new(access),
            refresh_token: Some(SecretValue::new(refresh)),
            expires_in_s: Some(LIFE_S),
            scope: None,
        }))
    }

    /// Issues a new access token without a new refresh token.
    fn grant_again(&mut self) -> ServerResponse {
        self.next += 1;
        let access = format!("a{}", self.next);
        self.access = Some(access.clone());
        ServerResponse::Token(Reply::Granted(Token {
            access_token: SecretValue::new(access),
            refresh_token: None,
            expires_in_s: Some(LIFE_S),
            scope: None,
        }))
    }

    fn answer(&mut self, request: &FormRequest) -> ServerResponse {
        self.requests += 1;
        let field = |name: &str| request.form.get(name).map(|it| it.expose().to_owned());
        let invalid = ServerResponse::Token(Reply::Refused(TokenErrorResponse {
            error: "invalid_grant".to_owned(),
            description: None,
        }));
        if field("grant_type").as_deref() == Some("authorization_code") {
            let verifier = SecretValue::new(field("code_verifier").unwrap());
            let is_good = self.codes.remove(&field("code").unwrap())
                && Some(crate::pkce::challenge(&verifier)) == self.challenge;
            return if is_good { self.grant() } else { invalid };
        }
        let token = field("refresh_token").unwrap();
        if self.keeps_refresh && self.refresh.as_ref() == Some(&token) {
            return self.grant_again();
        }
        if self.refresh.as_ref() == Some(&token) {
            self.spent.insert(token);
            return self.grant();
        }
        if self.spent.contains(&token) {
            (self.refresh, self.access) = (None, None);
        }
        invalid
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StepFault {
    CrashBefore,
    CrashAfter,
    /// The request is not sent, or the document not written.
    Fails,
    /// The caller does not know whether the request was sent.
    UnknownNotMade,
    UnknownMade,
}

struct World {
    now_ms: i64,
    machine: OAuthMachine,
    disk: BTreeMap<PathBuf, Fields>,
    server: SimulatedAuthServer,
    steps: usize,
    answers: Vec<(WaiterId, Result<GrantAnswer, ErrorCode>)>,
    token: Option<String>,
    asked: String,
    /// True if a significant server response was lost.
    is_reply_lost: bool,
    /// True if a response is not stored yet.
    is_unkept: bool,
}

fn workspace() -> WorkspaceId {
    "w".parse().unwrap()
}

fn app_name() -> ResourceName {
    "github".parse().unwrap()
}

fn key() -> GrantKey {
    GrantKey {
        workspace_id: workspace(),
        need: need(),
    }
}

fn need() -> OAuthNeed {
    OAuthNeed {
        app: app_name(),
        subject: goondan_protocol::ids::OAuthSubject::global(),
    }
}

fn app() -> OAuthApp {
    OAuthApp {
        name: app_name(),
        issuer: None,
        endpoints: Endpoints {
            authorization: Some("https://as.example/authorize".to_owned()),
            token: Some("https://as.example/token".to_owned()),
            ..Endpoints::default()
        },
        resource: None,
        client_id: Some("id".to_owned()),
        client_secret: None,
        client_auth: ClientAuth::None,
        scopes: vec!["repo".to_owned()],
        wider_scopes: vec!["write".to_owned()],
        redirect_uri: None,
        per_user: false,
        params: BTreeMap::new(),
    }
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            now_ms: 1_700_000_000_000,
            machine: OAuthMachine::default(),
            disk: BTreeMap::new(),
            server: SimulatedAuthServer::default(),
            steps: 0,
            answers: Vec::new(),
            token: None,
            asked: String::new(),
            is_reply_lost: false,
            is_unkept: false,
        };
        world.start();
        world
    }

    fn start(&mut self) {
        self.machine = OAuthMachine::default();
        self.token = None;
        self.machine.begin(Timestamp::from_unix_millis(self.now_ms));
        let apps = BTreeMap::from([(app_name(), app())]);
        let needs = BTreeSet::from([need()]);
        self.machine.set_apps(&workspace(), &apps, &needs);
    }

    /// Executes all effects, with faults at the selected steps.
    fn settle(&mut self, fault: &mut impl FnMut(usize) -> Option<StepFault>) {
        let mut waiting: VecDeque<OAuthEffect> = self.machine.take_effects().into();
        while let Some(effect) = waiting.pop_front() {
            let fault = fault(self.steps);
            self.steps += 1;
            if fault == Some(StepFault::CrashBefore) {
                let lost: Vec<&OAuthEffect> = [&effect].into_iter().chain(&waiting).collect();
                self.note_lost(&lost);
                self.start();
                waiting = self.machine.take_effects().into();
                continue;
            }
            self.carry_out(effect, fault);
            if fault == Some(StepFault::CrashAfter) {
                let lost: Vec<&OAuthEffect> = waiting.iter().collect();
                self.note_lost(&lost);
                self.start();
                waiting.clear();
            }
            waiting.extend(self.machine.take_effects());
        }
    }

    /// A response that was received but not stored is lost with the daemon.
    fn note_lost(&mut self, effects: &[&OAuthEffect]) {
        let is_grant = |effect: &OAuthEffect| {
            matches!(
                effect,
                OAuthEffect::Documents(DocumentWork::Write {
                    place: DocumentKey::Grant(_),
                    ..
                })
            )
        };
        self.is_reply_lost |= self.is_unkept || effects.iter().any(|it| is_grant(it));
        self.is_unkept = false;
    }

    fn carry_out(&mut self, effect: OAuthEffect, fault: Option<StepFault>) {
        let crashes = fault == Some(StepFault::CrashAfter);
        match effect {
            OAuthEffect::Documents(DocumentWork::Read { workspace_id, app }) => {
                let documents = Documents {
                    found: self.disk.values().cloned().collect(),
                    problems: Vec::new(),
                };
                self.machine.on_read(&workspace_id, &app, documents);
            }
            OAuthEffect::Documents(DocumentWork::Write {
                ticket,
                place,
                fields,
            }) => {
                let is_grant = matches!(place, DocumentKey::Grant(_));
                self.is_unkept = match (is_grant, fault) {
                    (true, fault) => fault == Some(StepFault::Fails),
                    (false, _) => self.is_unkept,
                };
                let result = if fault == Some(StepFault::Fails) {
                    Err("disk full".to_owned())
                } else {
                    self.disk.insert(place.path(), fields);
                    Ok(())
                };
                assert!(
                    self.machine.is_writing(),
                    "a daemon that ends would lose it"
                );
                if !crashes {
                    self.machine.on_kept(ticket, result);
                }
            }
            OAuthEffect::Documents(DocumentWork::Remove { ticket, place }) => {
                self.disk.remove(&place.path());
                if !crashes {
                    self.machine.on_kept(ticket, Ok(()));
                }
            }
            OAuthEffect::Ask {
                ticket, request, ..
            } => {
                let ServerRequest::Token(request) = request else {
                    panic!("{request:?}")
                };
                let answered = match fault {
                    Some(StepFault::Fails) => ServerResponse::NotMade("unreachable".to_owned()),
                    Some(StepFault::UnknownNotMade) => ServerResponse::Unknown("reset".to_owned()),
                    Some(StepFault::UnknownMade | StepFault::CrashAfter) => {
                        drop(self.server.answer(&request));
                        self.is_reply_lost = true;
                        ServerResponse::Unknown("reset".to_owned())
                    }
                    Some(StepFault::CrashBefore) | None => self.server.answer(&request),
                };
                if !crashes {
                    self.machine.on_answered(ticket, answered);
                }
            }
            OAuthEffect::Token { token, .. } => {
                self.token = token.map(|token| token.expose().to_owned());
                if let Some(token) = &self.token {
                    let is_kept = self.disk.values().any(|fields| {
                        fields
                            .iter()
                            .any(|(name, value)| name == "accessToken" && value.expose() == token)
                    });
                    assert!(is_kept, "{token} was handed out and is not on disk");
                }
            }
            OAuthEffect::Answer { waiter, result } => {
                self.answers
                    .push((waiter, result.map_err(|error| error.code)));
            }
            OAuthEffect::Happened { .. } => {}
        }
    }

    fn pass(&mut self, ms: i64) {
        self.now_ms += ms;
        self.machine.begin(Timestamp::from_unix_millis(self.now_ms));
        self.machine.on_time();
    }

    fn log_in(&mut self, n: u64) {
        let id: LoginId = format!("l{n}").parse().unwrap();
        let entropy = [u8::try_from(n % 251).unwrap(); ENTROPY_BYTES];
        let login = (id.clone(), &entropy);
        self.machine
            .login(WaiterId(n), &key(), login, (Some(4711), false));
        self.settle(&mut |_| None);
        let Some((_, Ok(GrantAnswer::Begun(begun)))) = self.answers.pop() else {
            panic!("no login began")
        };
        let parameter = |name: &str| {
            let begin = begun.url.split_once(&format!("{name}=")).unwrap().1;
            begin.split('&').next().unwrap().to_owned()
        };
        self.server.challenge = Some(parameter("code_challenge"));
        self.server.codes.insert(format!("c{n}"));
        self.asked.clone_from(&begun.url);
        let redirect = begun.redirect_uri.unwrap();
        let callback = format!("{redirect}?code=c{n}&state={}", parameter("state"));
        let callback = SecretValue::new(callback);
        self.machine
            .finish(WaiterId(n), &workspace(), id, Some(callback));
    }

    /// A world with a logged-in user.
    fn logged_in() -> Self {
        let mut world = Self::new();
        world.log_in(1);
        world.settle(&mut |_| None);
        let (_, answer) = world.answers.pop().unwrap();
        assert!(matches!(answer, Ok(GrantAnswer::Grant(info)) if info.state == GrantState::Active));
        assert_eq!(world.token.as_deref(), Some("a1"));
        assert_eq!(
            world.disk.len(),
            1,
            "nothing stays of a login but its grant"
        );
        world
    }

    fn state(&self) -> GrantState {
        self.machine.show(&key()).unwrap().state
    }

    fn needs_login(&self) -> bool {
        self.state() == GrantState::NeedsAuth
    }

    fn is_on_disk(&self) -> bool {
        self.disk.keys().any(|path| path.starts_with("grants"))
    }

    /// Checks the invariants of a settled world.
    fn check(&self, case: &str) {
        assert!(self.is_on_disk(), "the grant is gone: {case}");
        let missing = self.machine.missing_logins(&workspace());
        assert_eq!(!missing.is_empty(), self.needs_login(), "{case}");
        if self.needs_login() {
            assert!(self.is_reply_lost, "a new login for nothing: {case}");
            assert_eq!(self.token, None, "{case}");
        } else {
            assert_eq!(self.state(), GrantState::Active, "{case}");
            assert_eq!(self.token, self.server.access, "{case}");
        }
    }
}

#[test]
fn sys_4_thousand_concurrent_token_renewals_make_one_request() {
    let mut world = World::logged_in();
    let before = world.server.requests;
    for n in 0..1_000 {
        world.machine.refresh(WaiterId(n), &key());
    }
    world.settle(&mut |_| None);
    assert_eq!(world.server.requests, before + 1);
    assert_eq!(world.answers.len(), 1_000);
    assert!(world.answers.iter().all(|(_, answer)| answer.is_ok()));
    let waiters: BTreeSet<WaiterId> = world.answers.iter().map(|(waiter, _)| *waiter).collect();
    assert_eq!(waiters.len(), 1_000);
}

#[test]
fn sys_4_missing_new_refresh_token_keeps_the_previous_one() {
    let mut world = World::logged_in();
    world.server.keeps_refresh = true;
    for access in ["a2", "a3"] {
        world.pass(800_000);
        world.settle(&mut |_| None);
        assert_eq!(world.token.as_deref(), Some(access));
    }
    let kept = world.disk.values().flat_map(Fields::iter);
    let kept = kept.filter(|(name, _)| *name == "refreshToken");
    let kept: Vec<&str> = kept.map(|(_, value)| value.expose()).collect();
    assert_eq!(kept, ["r1"]);
    world.check("renewed twice with one refresh token");
}

#[test]
fn sys_4_a_token_is_renewed_at_eighty_percent_of_its_life() {
    let mut world = World::logged_in();
    world.pass(799_999);
    world.settle(&mut |_| None);
    assert_eq!(world.token.as_deref(), Some("a1"));
    world.pass(1);
    world.settle(&mut |_| None);
    assert_eq!(world.token.as_deref(), Some("a2"));
}

#[test]
fn sys_4_crash_at_any_step_needs_login_only_if_a_reply_was_lost() {
    let renew = |world: &mut World, fault: &mut dyn FnMut(usize) -> Option<StepFault>| {
        for _ in 0..3 {
            world.pass(850_000);
            world.settle(&mut |step| fault(step));
        }
        // Everything that must be retried is retried.
        for _ in 0..4 {
            world.pass(2_000);
            world.settle(&mut |_| None);
        }
    };
    let mut undisturbed = World::logged_in();
    let begin = undisturbed.steps;
    renew(&mut undisturbed, &mut |_| None);
    let end = undisturbed.steps;
    assert!(end - begin >= 15, "{begin} {end}");
    let mut logins = 0;
    for at in begin..end {
        for fault in [
            StepFault::CrashBefore,
            StepFault::CrashAfter,
            StepFault::Fails,
            StepFault::UnknownNotMade,
            StepFault::UnknownMade,
        ] {
            let mut world = World::logged_in();
            renew(&mut world, &mut |step| (step == at).then_some(fault));
            world.check(&format!("{fault:?} at step {at}"));
            logins += usize::from(world.needs_login());
        }
    }
    // Three refreshes, and for each three ways to lose the response: in transit, with a daemon that
    // waits for it, or with a daemon that has just received it.
    assert_eq!(logins, 9);
}

/// Calls a resource server. It accepts the latest token of the authorization server, or no token.
fn call_resource(world: &mut World, takes_none: bool) {
    let Some(token) = world.token.clone() else {
        return;
    };
    let is_good = world.server.access.as_ref() == Some(&token) && !takes_none;
    let token = SecretValue::new(token);
    if is_good {
        return world.machine.worked(&key(), &token);
    }
    let said = TokenVerdict::Declined;
    let ruling = world.machine.declined(&key(), &token, &said, false);
    assert_eq!(ruling, RejectionOutcome::OtherToken);
}

/// The authorization server revokes its latest access token, but still renews it.
fn take_back(world: &mut World) {
    world.server.access = Some("taken back".to_owned());
}

#[test]
fn sys_4_a_hundred_declined_calls_with_one_token_renew_it_once() {
    let mut world = World::logged_in();
    take_back(&mut world);
    let before = world.server.requests;
    for _ in 0..100 {
        call_resource(&mut world, false);
    }
    world.settle(&mut |_| None);
    assert_eq!(world.server.requests, before + 1);
    world.check("after a hundred");
    // A late caller with the old token gets the new one.
    let old = SecretValue::new("a1".to_owned());
    let ruling = world
        .machine
        .declined(&key(), &old, &TokenVerdict::Declined, false);
    world.settle(&mut |_| None);
    assert_eq!(ruling, RejectionOutcome::OtherToken);
    assert_eq!(world.server.requests, before + 1);
    // A token that was accepted and rejected later is renewed like the first.
    call_resource(&mut world, false);
    take_back(&mut world);
    call_resource(&mut world, false);
    world.settle(&mut |_| None);
    assert_eq!(world.server.requests, before + 2);
    world.check("declined again, long after it was taken");
}

#[test]
fn sys_4_token_declined_after_renewal_needs_a_login_and_is_kept() {
    let mut world = World::logged_in();
    let before = world.server.requests;
    for _ in 0..3 {
        call_resource(&mut world, true);
        world.settle(&mut |_| None);
    }
    assert_eq!(world.server.requests, before + 1, "it is renewed once");
    assert!(world.needs_login());
    assert_eq!(world.token, None);
    let is_kept = |name: &str, value: &str| {
        let fields = world.disk.values().flat_map(Fields::iter);
        let mut found = fields.filter(|(of, it)| *of == name && it.expose() == value);
        found.next().is_some()
    };
    assert!(is_kept("refreshToken", "r2") && is_kept("status", "needs_auth"));
    world.start();
    world.settle(&mut |_| None);
    assert!(world.needs_login(), "after a restart, too");
    world.log_in(2);
    world.settle(&mut |_| None);
    world.check("a user has logged in");
}

#[test]
fn sys_4_renewal_after_a_decline_survives_a_crash_at_any_step() {
    let live = |takes_none: bool, fault: &mut dyn FnMut(usize) -> Option<StepFault>| {
        let mut world = World::logged_in();
        take_back(&mut world);
        for _ in 0..4 {
            call_resource(&mut world, takes_none);
            world.settle(&mut |step| fault(step));
            world.pass(4_000);
        }
        for _ in 0..4 {
            world.pass(10_000);
            world.settle(&mut |_| None);
            call_resource(&mut world, takes_none);
            world.settle(&mut |_| None);
        }
        world
    };
    let mut end = 0;
    drop(live(true, &mut |step| {
        end = end.max(step + 1);
        None
    }));
    let begin = World::logged_in().steps;
    assert!(end - begin >= 8, "{begin} {end}");
    for at in begin..end {
        for fault in [
            StepFault::CrashBefore,
            StepFault::CrashAfter,
            StepFault::Fails,
            StepFault::UnknownNotMade,
            StepFault::UnknownMade,
        ] {
            let case = format!("{fault:?} at step {at}");
            let mut inject = |step| (step == at).then_some(fault);
            live(false, &mut inject).check(&case);
            let world = live(true, &mut inject);
            assert!(world.needs_login(), "{case}");
            assert!(world.is_on_disk(), "the grant is gone: {case}");
            let requests = world.server.requests;
            assert!(requests <= 4, "{requests} requests: {case}");
        }
    }
}

#[test]
fn sys_4_wider_scopes_need_consent_and_only_if_requestable() {
    let mut world = World::logged_in();
    let narrow = |world: &mut World, scopes: &[&str]| {
        let scopes = scopes.iter().map(|scope| (*scope).to_owned()).collect();
        let token = SecretValue::new(world.token.clone().unwrap());
        let said = TokenVerdict::TooLittle { scopes };
        let ruling = world.machine.declined(&key(), &token, &said, false);
        world.settle(&mut |_| None);
        ruling
    };
    let stays = |ruling: RejectionOutcome| match ruling {
        RejectionOutcome::Stays { why, .. } => why,
        other => panic!("{other:?}"),
    };
    assert!(stays(narrow(&mut world, &["admin"])).contains("may not be asked for `admin`"));
    assert!(stays(narrow(&mut world, &["repo", "admin"])).contains("`admin`"));
    assert!(stays(narrow(&mut world, &[])).contains("does not say"));
    // The scopes of the login count as granted, because the server sends none.
    assert!(stays(narrow(&mut world, &["repo"])).contains("according to its authorization server"));
    assert_eq!(world.machine.show(&key()).unwrap().wider_scope, None);

    assert_eq!(narrow(&mut world, &["write"]), RejectionOutcome::Consent);
    assert_eq!(world.token.as_deref(), Some("a1"), "other callers keep it");
    // It survives a restart and a renewal.
    world.start();
    world.settle(&mut |_| None);
    world.machine.refresh(WaiterId(5), &key());
    world.settle(&mut |_| None);
    let info = world.machine.show(&key()).unwrap();
    assert_eq!(info.wider_scope.as_deref(), Some("write"));
    assert_eq!(narrow(&mut world, &["write"]), RejectionOutcome::Consent);
    world.log_in(2);
    assert!(
        world.asked.contains("scope=repo%20write"),
        "{}",
        world.asked
    );
    world.settle(&mut |_| None);
    world.check("a user has consented to more");
    assert!(
        stays(narrow(&mut world, &["write"])).contains("according to its authorization server")
    );
}

#[test]
fn sys_4_seeded_lives_with_faults_everywhere_lose_no_grant() {
    for seed in 0..300 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut world = World::logged_in();
        for round in 0..12 {
            world.pass(rng.i64(1..400_000));
            if rng.u8(0..4) == 0 {
                world.machine.refresh(WaiterId(round), &key());
            }
            if rng.u8(0..4) == 0 {
                call_resource(&mut world, false);
            }
            world.settle(&mut |_| match rng.u8(0..12) {
                0 => Some(StepFault::CrashBefore),
                1 => Some(StepFault::CrashAfter),
                2 => Some(StepFault::Fails),
                3 => Some(StepFault::UnknownNotMade),
                _ => None,
            });
            if world.needs_login() {
                break;
            }
        }
        for _ in 0..4 {
            world.pass(300_000);
            world.settle(&mut |_| None);
        }
        world.check(&format!("seed {seed}"));
        if world.needs_login() {
            world.log_in(seed + 2);
            world.settle(&mut |_| None);
            assert_eq!(world.state(), GrantState::Active, "seed {seed}");
            assert_eq!(world.token, world.server.access, "seed {seed}");
        }
    }
}

#[test]
fn sys_4_a_login_is_used_once_and_by_its_own_callback_alone() {
    let mut world = World::logged_in();
    let callback = |state: &str| {
        let text = format!("http://127.0.0.1:4711/callback?code=c&state={state}");
        Some(SecretValue::new(text))
    };
    let id: LoginId = "l9".parse().unwrap();
    let login = (id.clone(), &[9; ENTROPY_BYTES]);
    world
        .machine
        .login(WaiterId(9), &key(), login, (Some(4711), false));
    world.settle(&mut |_| None);
    let Some((_, Ok(GrantAnswer::Begun(begun)))) = world.answers.pop() else {
        panic!("no login began")
    };
    let state = begun.url.split_once("state=").unwrap().1;
    let state = state.split('&').next().unwrap();
    let before = world.server.requests;
    let finish = |world: &mut World, workspace: &str, callback| {
        let workspace = workspace.parse().unwrap();
        world
            .machine
            .finish(WaiterId(1), &workspace, id.clone(), callback);
        world.settle(&mut |_| None);
        world.answers.pop().unwrap().1.map(drop)
    };
    let other = finish(&mut world, "w", callback("other"));
    assert_eq!(other, Err(ErrorCode::OauthRefused));
    let elsewhere = finish(&mut world, "x", callback(state));
    assert_eq!(elsewhere, Err(ErrorCode::OauthNotFound));
    assert_eq!(world.server.requests, before, "no code was exchanged");
    // The server does not know the code; the login is used up anyway.
    let wrong = finish(&mut world, "w", callback(state));
    assert_eq!(wrong, Err(ErrorCode::OauthRefused));
    let again = finish(&mut world, "w", callback(state));
    assert_eq!(again, Err(ErrorCode::OauthNotFound));
    assert_eq!(world.server.requests, before + 1);
    world.check("a login that failed changes no grant");
}

#[test]
fn sys_5_expired_logins_leave_no_files() {
    let mut world = World::new();
    let login = ("l1".parse().unwrap(), &[1; ENTROPY_BYTES]);
    world
        .machine
        .login(WaiterId(1), &key(), login, (Some(1), false));
    world.settle(&mut |_| None);
    assert_eq!(world.disk.len(), 1);
    world.pass(crate::limits::LOGIN_TTL_MS - 1);
    world.settle(&mut |_| None);
    assert_eq!(world.disk.len(), 1);
    // Also after a restart.
    world.start();
    world.settle(&mut |_| None);
    assert_eq!(world.disk.len(), 1);
    world.pass(1);
    world.settle(&mut |_| None);
    assert!(world.disk.is_empty());
}

#[test]
fn sys_4_tokens_of_another_app_with_the_same_name_are_not_used() {
    let mut world = World::logged_in();
    let mut other = app();
    other.endpoints.token = Some("https://evil.example/token".to_owned());
    let apps = BTreeMap::from([(app_name(), other)]);
    let needs = BTreeSet::from([need()]);
    world.machine.set_apps(&workspace(), &apps, &needs);
    let before = world.server.requests;
    world.pass(900_000);
    world.machine.refresh(WaiterId(1), &key());
    world.settle(&mut |_| None);
    assert_eq!(world.token, None);
    assert_eq!(world.state(), GrantState::NeedsAuth);
    assert_eq!(world.server.requests, before);
    assert_eq!(
        world.answers.pop().unwrap().1.map(drop),
        Err(ErrorCode::OauthRefused)
    );
    world.start();
    world.settle(&mut |_| None);
    assert_eq!(world.state(), GrantState::Active, "it is as it was");
}
