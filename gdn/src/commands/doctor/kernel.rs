//! Checks the kernel features that confinement and resource limits depend on.

use std::path::Path;

#[cfg(target_os = "linux")]
use goondan_confinement::Level;
use goondan_confinement::{Facts, Right};

use super::check_result::CheckResult;
use super::daemon_probe::ProbeResults;

const CONFINEMENT: &str = "confinement";

#[cfg(not(target_os = "linux"))]
pub(super) fn findings(seen: &ProbeResults) -> Vec<CheckResult> {
    vec![
        seen.placed(paths(seen.no_open_beneath.as_deref())),
        by_profile(&seen.rights),
    ]
}

/// Reports if a system without Landlock supports the level `seatbelt`.
#[cfg(any(not(target_os = "linux"), test))]
fn by_profile(held: &Facts) -> CheckResult {
    if held.contains(&Right::Profile) {
        let found = "the level `seatbelt` is available but untested: only the refusal of a file that a profile denies was checked";
        let hint = "do not rely on it to protect sensitive data; the tested levels are `full` and `landlock`, on Linux";
        CheckResult::warn(CONFINEMENT, found, hint)
    } else {
        let found = "no level is available: `seatbelt` needs macOS with `/usr/bin/sandbox-exec`";
        CheckResult::warn(
            CONFINEMENT,
            found,
            "run the daemon on Linux, or write `require: off`",
        )
    }
}

/// Checks each right on its own, because a kernel may support one and not another.
#[cfg(target_os = "linux")]
pub(super) fn findings(seen: &ProbeResults) -> Vec<CheckResult> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let apparmor = read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns");
    vec![
        user_namespaces(
            read("/proc/sys/user/max_user_namespaces").as_deref(),
            read("/proc/sys/kernel/unprivileged_userns_clone").as_deref(),
            apparmor.as_deref(),
        ),
        seccomp(read("/proc/self/status").as_deref()),
        seen.placed(paths(seen.no_open_beneath.as_deref())),
        seen.placed(confinement(&seen.rights)),
        control_groups(Path::new("/sys/fs/cgroup")),
    ]
}

/// File tools, sandboxes and proposals open paths beneath a directory, so that no symbolic link can escape it.
fn paths(refused: Option<&str>) -> CheckResult {
    const CHECK: &str = "paths";
    let Some(refused) = refused else {
        return CheckResult::ok(
            CHECK,
            "files can be opened beneath a directory without following links that lead out",
        );
    };
    let found = format!(
        "the kernel refuses `openat2` ({refused}): file tools, sandboxes, proposals and the level `full` fail"
    );
    let hint = "remove `RestrictSUIDSGID=` from the unit, which `gdn daemon service install --force` does; in a container, allow `openat2` in its seccomp filter";
    CheckResult::bad(CHECK, found, hint)
}

/// Confinement levels that this kernel supports, right by right, as just tested.
#[cfg(target_os = "linux")]
fn confinement(held: &Facts) -> CheckResult {
    let listed = |level: Level, is_held: bool| {
        let rights = Right::of(level).iter();
        let rights = rights.filter(|right| held.contains(right) == is_held);
        let named: Vec<String> = rights.map(ToString::to_string).collect();
        named.join(", ")
    };
    let missing = listed(Level::Landlock, false);
    if !missing.is_empty() {
        let found = format!("no level is available: the kernel does not confine {missing}");
        let hint = "use Linux 6.12 or later, with `landlock` in `lsm=`";
        return CheckResult::warn(CONFINEMENT, found, hint);
    }
    let missing = listed(Level::Full, false);
    if !missing.is_empty() {
        let held = listed(Level::Landlock, true);
        let found = format!(
            "the level `landlock` is available: the kernel confines {held}, but not {missing}"
        );
        let hint = "see `user namespaces` and `paths`, or write `require: landlock`";
        return CheckResult::warn(CONFINEMENT, found, hint);
    }
    let held = listed(Level::Full, true);
    CheckResult::ok(
        CONFINEMENT,
        format!("the level `full` is available: the kernel confines {held}"),
    )
}

fn user_namespaces(max: Option<&str>, clone: Option<&str>, apparmor: Option<&str>) -> CheckResult {
    const CHECK: &str = "user namespaces";
    let is = |text: Option<&str>, value: &str| text.is_some_and(|text| text.trim() == value);
    if max.is_none() || is(max, "0") {
        let hint = "sudo sysctl user.max_user_namespaces=15000";
        return CheckResult::warn(CHECK, "disabled in the kernel", hint);
    }
    if is(clone, "0") {
        let hint = "sudo sysctl kernel.unprivileged_userns_clone=1";
        return CheckResult::warn(CHECK, "only root can create them", hint);
    }
    if is(apparmor, "1") {
        let found = "AppArmor allows them only for programs with a profile";
        let hint = "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0, or a profile with `userns,`";
        return CheckResult::warn(CHECK, found, hint);
    }
    CheckResult::ok(CHECK, "any user can create them")
}

fn seccomp(status: Option<&str>) -> CheckResult {
    const CHECK: &str = "seccomp";
    let has_line = |status: &str| status.lines().any(|line| line.starts_with("Seccomp:"));
    if status.is_some_and(has_line) {
        CheckResult::ok(CHECK, "system calls can be filtered")
    } else {
        let hint = "use a kernel with CONFIG_SECCOMP_FILTER";
        CheckResult::warn(CHECK, "the kernel cannot filter system calls", hint)
    }
}

/// Without control groups, memory is limited for each process, not for a process with its children.
fn control_groups(root: &Path) -> CheckResult {
    const CHECK: &str = "control groups";
    if root.join("cgroup.controllers").is_file() {
        CheckResult::ok(CHECK, "version 2")
    } else {
        let found = "version 2 is not available: memory limits apply to each process separately";
        let hint = "start the machine with `systemd.unified_cgroup_hierarchy=1`";
        CheckResult::warn(CHECK, found, hint)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::super::check_result::CheckStatus;
    use super::*;

    #[test]
    fn block_on_user_namespaces_is_reported_with_its_fix() {
        let finding = |max, clone, apparmor| user_namespaces(max, clone, apparmor);
        assert_eq!(finding(Some("100\n"), None, None).verdict, CheckStatus::Ok);
        assert_eq!(
            finding(Some("100"), Some("1"), Some("0")).verdict,
            CheckStatus::Ok
        );
        let forbidden = [
            (finding(None, None, None), "max_user_namespaces"),
            (finding(Some("0\n"), None, None), "max_user_namespaces"),
            (
                finding(Some("9"), Some("0\n"), None),
                "unprivileged_userns_clone",
            ),
            (
                finding(Some("9"), Some("1"), Some("1\n")),
                "apparmor_restrict",
            ),
        ];
        for (finding, named) in forbidden {
            assert_eq!(finding.verdict, CheckStatus::Warn);
            assert!(finding.hint.unwrap().contains(named));
        }
    }

    #[test]
    fn a_right_that_is_missing_is_named() {
        let all: Facts = Right::ALL.into();
        assert_eq!(confinement(&all).verdict, CheckStatus::Ok);
        let some = Right::ALL
            .into_iter()
            .filter(|right| *right != Right::Signals);
        let finding = confinement(&some.collect());
        assert_eq!(finding.verdict, CheckStatus::Warn);
        assert!(finding.found.contains("signals"), "{}", finding.found);
        assert!(!finding.found.contains("seccomp"), "{}", finding.found);
        let finding = confinement(&Right::LANDLOCK.into());
        assert_eq!(finding.verdict, CheckStatus::Warn);
        assert!(
            finding.found.contains("user namespaces"),
            "{}",
            finding.found
        );
        assert!(finding.hint.unwrap().contains("`require: landlock`"));
    }

    #[test]
    fn sec_3_a_disabled_openat2_is_bad_and_its_remedy_is_named() {
        assert_eq!(paths(None).verdict, CheckStatus::Ok);
        let refused = paths(Some("Function not implemented"));
        assert_eq!(refused.verdict, CheckStatus::Bad);
        assert!(refused.hint.unwrap().contains("RestrictSUIDSGID"));
    }

    #[test]
    fn sec_3_untested_confinement_level_is_reported_as_untested() {
        let had = by_profile(&[Right::Profile].into());
        assert_eq!(had.verdict, CheckStatus::Warn);
        assert!(had.found.contains("`seatbelt`"), "{}", had.found);
        assert!(had.found.contains("untested"), "{}", had.found);
        let none = by_profile(&Facts::new());
        assert!(none.hint.unwrap().contains("`require: off`"));
    }

    #[test]
    fn seccomp_is_read_off_the_kernels_own_words() {
        assert_eq!(
            seccomp(Some("Name:\tx\nSeccomp:\t0\n")).verdict,
            CheckStatus::Ok
        );
        assert_eq!(seccomp(Some("Name:\tx\n")).verdict, CheckStatus::Warn);
    }
}
