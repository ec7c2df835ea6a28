//! Names of the JSON formats that `--json` prints, each with its version.
//!
//! A format only gains fields; any other change gets a new version. `docs/cli.md` describes the formats, and a test
//! checks that it describes all of them.

pub const ERROR: &str = "gdn.error/v1";
/// `gdn` without a command.
pub const OVERVIEW: &str = "gdn.overview/v1";
/// `gdn inbox`.
pub const INBOX: &str = "gdn.inbox/v1";
/// `gdn inbox show`.
pub const INBOX_SHOW: &str = "gdn.inbox.show/v1";
/// `gdn init`.
pub const INIT: &str = "gdn.init/v1";
/// `gdn run`.
pub const RUN: &str = "gdn.run/v1";
/// `gdn send`, and each reply of `gdn chat`.
pub const SEND: &str = "gdn.send/v1";
/// Each part of a reply that `gdn send --stream` prints.
pub const SEND_PIECE: &str = "gdn.send.piece/v1";
/// `gdn ps`.
pub const PS: &str = "gdn.ps/v1";
/// Each change that `gdn ps --watch` prints.
pub const PS_CHANGE: &str = "gdn.ps.change/v1";
/// `gdn daemon status`.
pub const STATUS: &str = "gdn.status/v1";
/// `gdn daemon remote use`.
pub const REMOTE_USE: &str = "gdn.remote.use/v1";
/// `gdn daemon remote show`.
pub const REMOTE_SHOW: &str = "gdn.remote.show/v1";
/// `gdn daemon remote list`.
pub const REMOTE_LIST: &str = "gdn.remote.list/v1";
/// `gdn daemon remote remove`.
pub const REMOTE_REMOVE: &str = "gdn.remote.remove/v1";
/// `gdn doctor`.
pub const DOCTOR: &str = "gdn.doctor/v1";
/// `gdn daemon service install`.
pub const SERVICE_INSTALL: &str = "gdn.service.install/v1";
/// `gdn daemon service status`.
pub const SERVICE_STATUS: &str = "gdn.service.status/v1";
/// `gdn daemon service remove`.
pub const SERVICE_REMOVE: &str = "gdn.service.remove/v1";
/// `gdn daemon upgrade`.
pub const UPGRADE: &str = "gdn.upgrade/v1";
/// `gdn daemon upgrade --list`.
pub const UPGRADE_LIST: &str = "gdn.upgrade.list/v1";
/// `gdn daemon upgrade --check`.
pub const UPGRADE_CHECK: &str = "gdn.upgrade.check/v1";
/// `gdn conversation list`.
pub const INSTANCE_LIST: &str = "gdn.instance.list/v1";
/// `gdn conversation show`.
pub const INSTANCE_SHOW: &str = "gdn.instance.show/v1";
/// `gdn conversation history`.
pub const INSTANCE_HISTORY: &str = "gdn.instance.history/v1";
/// `gdn conversation history --turns`.
pub const INSTANCE_TURNS: &str = "gdn.instance.turns/v1";
/// `gdn conversation export`.
pub const INSTANCE_EXPORT: &str = "gdn.instance.export/v1";
/// `gdn conversation import`.
pub const INSTANCE_IMPORT: &str = "gdn.instance.import/v1";
/// `gdn conversation delete`.
pub const INSTANCE_DELETE: &str = "gdn.instance.delete/v1";
/// `gdn conversation checkpoint`.
pub const INSTANCE_CHECKPOINT: &str = "gdn.instance.checkpoint/v1";
/// `gdn conversation checkpoints`.
pub const INSTANCE_CHECKPOINTS: &str = "gdn.instance.checkpoints/v1";
/// `gdn conversation rewind`.
pub const REWIND: &str = "gdn.rewind/v1";
/// `gdn conversation prune`.
pub const INSTANCE_PRUNE: &str = "gdn.instance.prune/v1";
/// `gdn daemon verify`.
pub const VERIFY: &str = "gdn.verify/v1";
/// `gdn conversation cancel`.
pub const CANCEL: &str = "gdn.cancel/v1";
/// `gdn event list`.
pub const EVENT_LIST: &str = "gdn.event.list/v1";
/// `gdn event retry`.
pub const EVENT_RETRY: &str = "gdn.event.retry/v1";
/// `gdn event drop`.
pub const EVENT_DROP: &str = "gdn.event.drop/v1";
/// `gdn event pause`.
pub const EVENT_PAUSE: &str = "gdn.event.pause/v1";
/// `gdn event resume`.
pub const EVENT_RESUME: &str = "gdn.event.resume/v1";
/// `gdn event move`.
pub const EVENT_MOVE: &str = "gdn.event.move/v1";
/// `gdn inbox question list`.
pub const QUESTION_LIST: &str = "gdn.question.list/v1";
/// `gdn inbox question show`.
pub const QUESTION_SHOW: &str = "gdn.question.show/v1";
/// `gdn inbox question answer`.
pub const QUESTION_ANSWER: &str = "gdn.question.answer/v1";
/// `gdn inbox question decline`.
pub const QUESTION_DECLINE: &str = "gdn.question.decline/v1";
/// `gdn inbox approvals`.
pub const APPROVALS: &str = "gdn.approvals/v1";
/// `gdn inbox approvals ID`.
pub const APPROVALS_SHOW: &str = "gdn.approvals.show/v1";
/// `gdn inbox standing`.
pub const STANDING: &str = "gdn.standing/v1";
/// `gdn inbox revoke`.
pub const REVOKE: &str = "gdn.revoke/v1";
/// `gdn inbox approve`.
pub const APPROVE: &str = "gdn.approve/v1";
/// `gdn inbox deny`.
pub const DENY: &str = "gdn.deny/v1";
/// `gdn inbox calls`.
pub const CALLS: &str = "gdn.calls/v1";
/// `gdn inbox settle`.
pub const SETTLE: &str = "gdn.settle/v1";
/// `gdn event inject`.
pub const EVENT_INJECT: &str = "gdn.event.inject/v1";
/// `gdn event schedule move`.
pub const SCHEDULE_MOVE: &str = "gdn.schedule.move/v1";
/// `gdn event schedule list`.
pub const SCHEDULE_LIST: &str = "gdn.schedule.list/v1";
/// `gdn event schedule remove`.
pub const SCHEDULE_REMOVE: &str = "gdn.schedule.remove/v1";
/// `gdn proposal sandbox prepare`.
pub const SANDBOX_PREPARE: &str = "gdn.sandbox.prepare/v1";
/// `gdn proposal sandbox list`.
pub const SANDBOX_LIST: &str = "gdn.sandbox.list/v1";
/// `gdn proposal sandbox show`.
pub const SANDBOX_SHOW: &str = "gdn.sandbox.show/v1";
/// `gdn proposal sandbox remove`.
pub const SANDBOX_REMOVE: &str = "gdn.sandbox.remove/v1";
/// `gdn proposal create`.
pub const PROPOSAL_CREATE: &str = "gdn.proposal.create/v1";
/// `gdn proposal list`.
pub const PROPOSAL_LIST: &str = "gdn.proposal.list/v1";
/// `gdn proposal show`.
pub const PROPOSAL_SHOW: &str = "gdn.proposal.show/v1";
/// `gdn proposal diff`.
pub const PROPOSAL_DIFF: &str = "gdn.proposal.diff/v1";
/// `gdn proposal check`.
pub const PROPOSAL_CHECK: &str = "gdn.proposal.check/v1";
/// `gdn proposal apply`.
pub const PROPOSAL_APPLY: &str = "gdn.proposal.apply/v1";
/// `gdn proposal merge`.
pub const PROPOSAL_MERGE: &str = "gdn.proposal.merge/v1";
/// `gdn proposal comment`.
pub const PROPOSAL_COMMENT: &str = "gdn.proposal.comment/v1";
/// `gdn proposal comments`.
pub const PROPOSAL_COMMENTS: &str = "gdn.proposal.comments/v1";
/// `gdn proposal uncomment`.
pub const PROPOSAL_UNCOMMENT: &str = "gdn.proposal.uncomment/v1";
/// `gdn proposal reject`.
pub const PROPOSAL_REJECT: &str = "gdn.proposal.reject/v1";
/// `gdn proposal revert`.
pub const PROPOSAL_REVERT: &str = "gdn.proposal.revert/v1";
/// `gdn conversation bundle status`.
pub const BUNDLE_STATUS: &str = "gdn.bundle.status/v1";
/// `gdn conversation bundle log`.
pub const BUNDLE_LOG: &str = "gdn.bundle.log/v1";
/// `gdn conversation bundle show`.
pub const BUNDLE_SHOW: &str = "gdn.bundle.show/v1";
/// `gdn conversation bundle diff`.
pub const BUNDLE_DIFF: &str = "gdn.bundle.diff/v1";
/// `gdn conversation bundle blame`.
pub const BUNDLE_BLAME: &str = "gdn.bundle.blame/v1";
/// `gdn conversation bundle rehearse`.
pub const BUNDLE_REHEARSE: &str = "gdn.bundle.rehearse/v1";
/// `gdn conversation bundle approve`.
pub const BUNDLE_APPROVE: &str = "gdn.bundle.approve/v1";
/// `gdn conversation bundle reject`.
pub const BUNDLE_REJECT: &str = "gdn.bundle.reject/v1";
/// `gdn conversation bundle revert`.
pub const BUNDLE_REVERT: &str = "gdn.bundle.revert/v1";
/// `gdn conversation bundle pin`.
pub const BUNDLE_PIN: &str = "gdn.bundle.pin/v1";
/// `gdn task new`, and commands that change the state of a task: `start`, `pause`, `resume`, `cancel`, `provide`,
/// `answer`, `approve`, `rework`, `budget` and `import`.
pub const TASK: &str = "gdn.task/v1";
/// `gdn task list`.
pub const TASK_LIST: &str = "gdn.task.list/v1";
/// `gdn task show`.
pub const TASK_SHOW: &str = "gdn.task.show/v1";
/// Every command of `gdn task queue`.
pub const TASK_QUEUE: &str = "gdn.task.queue/v1";
/// Each part that `gdn task logs` prints.
pub const TASK_LOGS: &str = "gdn.task.logs/v1";
/// Each item that `gdn task watch` prints.
pub const TASK_WATCH: &str = "gdn.task.watch/v1";
/// `gdn task usage`.
pub const TASK_USAGE: &str = "gdn.task.usage/v1";
/// `gdn task checkpoint`.
pub const TASK_CHECKPOINT: &str = "gdn.task.checkpoint/v1";
/// `gdn task checkpoints`.
pub const TASK_CHECKPOINTS: &str = "gdn.task.checkpoints/v1";
/// `gdn task restore`.
pub const TASK_RESTORE: &str = "gdn.task.restore/v1";
/// `gdn task drill`.
pub const TASK_DRILL: &str = "gdn.task.drill/v1";
/// `gdn task prune`.
pub const TASK_PRUNE: &str = "gdn.task.prune/v1";
/// `gdn task rm`.
pub const TASK_RM: &str = "gdn.task.rm/v1";
/// `gdn secret set`.
pub const SECRET_SET: &str = "gdn.secret.set/v1";
/// `gdn secret list`.
pub const SECRET_LIST: &str = "gdn.secret.list/v1";
/// `gdn secret allow`.
pub const SECRET_ALLOW: &str = "gdn.secret.allow/v1";
/// `gdn secret deny`.
pub const SECRET_DENY: &str = "gdn.secret.deny/v1";
/// `gdn secret remove`.
pub const SECRET_REMOVE: &str = "gdn.secret.remove/v1";
/// `gdn package install`.
pub const PACKAGE_INSTALL: &str = "gdn.package.install/v1";
/// `gdn package add`.
pub const PACKAGE_ADD: &str = "gdn.package.add/v1";
/// `gdn package remove`.
pub const PACKAGE_REMOVE: &str = "gdn.package.remove/v1";
/// `gdn package list`.
pub const PACKAGE_LIST: &str = "gdn.package.list/v1";
/// `gdn package update`.
pub const PACKAGE_UPDATE: &str = "gdn.package.update/v1";
/// `gdn package pack`.
pub const PACKAGE_PACK: &str = "gdn.package.pack/v1";
/// `gdn package publish`.
pub const PACKAGE_PUBLISH: &str = "gdn.package.publish/v1";
/// `gdn package audit`.
pub const PACKAGE_AUDIT: &str = "gdn.package.audit/v1";
/// `gdn package prune`.
pub const PACKAGE_PRUNE: &str = "gdn.package.prune/v1";
/// `gdn package why`.
pub const PACKAGE_WHY: &str = "gdn.package.why/v1";
/// `gdn secret rotate`.
pub const SECRET_ROTATE: &str = "gdn.secret.rotate/v1";
/// `gdn workspace permission allow`.
pub const PERMISSION_ALLOW: &str = "gdn.permission.allow/v1";
/// `gdn workspace permission deny`.
pub const PERMISSION_DENY: &str = "gdn.permission.deny/v1";
/// `gdn workspace permission list`.
pub const PERMISSION_LIST: &str = "gdn.permission.list/v1";
/// First output of `gdn secret oauth login`: the next step for the user.
pub const OAUTH_LOGIN: &str = "gdn.oauth.login/v1";
/// `gdn secret oauth list`.
pub const OAUTH_LIST: &str = "gdn.oauth.list/v1";
/// `gdn secret oauth show`, `refresh` and, at its end, `login`.
pub const OAUTH_SHOW: &str = "gdn.oauth.show/v1";
/// `gdn secret oauth revoke`.
pub const OAUTH_REVOKE: &str = "gdn.oauth.revoke/v1";
/// `gdn daemon gc`.
pub const GC: &str = "gdn.gc/v1";
/// `gdn daemon backup create`.
pub const BACKUP_CREATE: &str = "gdn.backup.create/v1";
/// `gdn daemon backup list`.
pub const BACKUP_LIST: &str = "gdn.backup.list/v1";
/// `gdn daemon backup verify`.
pub const BACKUP_VERIFY: &str = "gdn.backup.verify/v1";
/// `gdn daemon backup restore`.
pub const BACKUP_RESTORE: &str = "gdn.backup.restore/v1";
/// `gdn daemon backup resume`.
pub const BACKUP_RESUME: &str = "gdn.backup.resume/v1";
/// `gdn daemon backup prune`.
pub const BACKUP_PRUNE: &str = "gdn.backup.prune/v1";
/// `gdn daemon backup identity`.
pub const BACKUP_IDENTITY: &str = "gdn.backup.identity/v1";
/// `gdn daemon node list`.
pub const NODE_LIST: &str = "gdn.node.list/v1";
/// `gdn daemon node move`, and each workspace that `gdn daemon node drain` moves.
pub const NODE_MOVE: &str = "gdn.node.move/v1";
/// `gdn daemon node drain`.
pub const NODE_DRAIN: &str = "gdn.node.drain/v1";
/// `gdn daemon node leave`.
pub const NODE_LEAVE: &str = "gdn.node.leave/v1";
/// `gdn workspace list`.
pub const WORKSPACE_LIST: &str = "gdn.workspace.list/v1";
/// `gdn workspace close` and `gdn stop`.
pub const WORKSPACE_CLOSE: &str = "gdn.workspace.close/v1";
/// `gdn workspace forget`.
pub const FORGET: &str = "gdn.forget/v1";
/// `gdn event trace`.
pub const TRACE: &str = "gdn.trace/v1";
/// `gdn incident export`.
pub const INCIDENT_EXPORT: &str = "gdn.incident.export/v1";
/// `gdn incident replay`.
pub const INCIDENT_REPLAY: &str = "gdn.incident.replay/v1";
/// `gdn incident test`.
pub const INCIDENT_TEST: &str = "gdn.incident.test/v1";
/// Each update that `gdn workspace watch` prints.
pub const WATCH: &str = "gdn.watch/v1";
/// `gdn top --once`.
pub const TOP: &str = "gdn.top/v1";
/// `gdn usage`.
pub const USAGE: &str = "gdn.usage/v1";
/// `gdn daemon audit`.
pub const AUDIT: &str = "gdn.audit/v1";
/// `gdn restart`.
pub const RESTART: &str = "gdn.restart/v1";
/// `gdn config reload`.
pub const RELOAD: &str = "gdn.reload/v1";
/// `gdn daemon shutdown`.
pub const SHUTDOWN: &str = "gdn.shutdown/v1";
/// `gdn validate`.
pub const VALIDATE: &str = "gdn.validate/v1";
/// `gdn config migrate`.
pub const MIGRATE: &str = "gdn.migrate/v1";
/// `gdn config import`.
pub const IMPORT: &str = "gdn.import/v1";
/// `gdn config types`.
pub const TYPES: &str = "gdn.types/v1";
/// `gdn config show`.
pub const CONFIG_SHOW: &str = "gdn.config.show/v1";
/// `gdn config expand`.
pub const CONFIG_EXPAND: &str = "gdn.config.expand/v1";
/// `gdn studio`, one for each address.
pub const STUDIO: &str = "gdn.studio/v1";
/// `gdn daemon metrics`.
pub const METRICS: &str = "gdn.metrics/v1";
/// `gdn demo`.
pub const DEMO: &str = "gdn.demo/v1";
/// `gdn demo kill`.
pub const DEMO_KILL: &str = "gdn.demo.kill/v1";
/// `gdn demo nodes`.
pub const DEMO_NODES: &str = "gdn.demo.nodes/v1";

pub const ALL: &[&str] = &[
    ERROR,
    OVERVIEW,
    INBOX,
    INBOX_SHOW,
    INIT,
    RUN,
    SEND,
    SEND_PIECE,
    PS,
    PS_CHANGE,
    STATUS,
    REMOTE_USE,
    REMOTE_SHOW,
    REMOTE_LIST,
    REMOTE_REMOVE,
    DOCTOR,
    SERVICE_INSTALL,
    SERVICE_STATUS,
    SERVICE_REMOVE,
    UPGRADE,
    UPGRADE_LIST,
    UPGRADE_CHECK,
    INSTANCE_LIST,
    INSTANCE_SHOW,
    INSTANCE_HISTORY,
    INSTANCE_TURNS,
    INSTANCE_EXPORT,
    INSTANCE_IMPORT,
    INSTANCE_DELETE,
    INSTANCE_CHECKPOINT,
    INSTANCE_CHECKPOINTS,
    REWIND,
    INSTANCE_PRUNE,
    VERIFY,
    CANCEL,
    EVENT_LIST,
    EVENT_RETRY,
    EVENT_DROP,
    EVENT_PAUSE,
    EVENT_RESUME,
    EVENT_MOVE,
    QUESTION_LIST,
    QUESTION_SHOW,
    QUESTION_ANSWER,
    QUESTION_DECLINE,
    APPROVALS,
    APPROVALS_SHOW,
    STANDING,
    REVOKE,
    APPROVE,
    DENY,
    CALLS,
    SETTLE,
    SCHEDULE_LIST,
    SCHEDULE_REMOVE,
    SANDBOX_PREPARE,
    SANDBOX_LIST,
    SANDBOX_SHOW,
    SANDBOX_REMOVE,
    PROPOSAL_CREATE,
    PROPOSAL_LIST,
    PROPOSAL_SHOW,
    PROPOSAL_DIFF,
    PROPOSAL_CHECK,
    PROPOSAL_APPLY,
    PROPOSAL_MERGE,
    PROPOSAL_REJECT,
    PROPOSAL_REVERT,
    PROPOSAL_COMMENT,
    PROPOSAL_COMMENTS,
    PROPOSAL_UNCOMMENT,
    BUNDLE_STATUS,
    BUNDLE_LOG,
    BUNDLE_SHOW,
    BUNDLE_DIFF,
    BUNDLE_BLAME,
    BUNDLE_REHEARSE,
    BUNDLE_APPROVE,
    BUNDLE_REJECT,
    BUNDLE_REVERT,
    BUNDLE_PIN,
    TASK,
    TASK_LIST,
    TASK_SHOW,
    TASK_QUEUE,
    TASK_LOGS,
    TASK_WATCH,
    TASK_USAGE,
    TASK_CHECKPOINT,
    TASK_CHECKPOINTS,
    TASK_RESTORE,
    TASK_DRILL,
    TASK_PRUNE,
    TASK_RM,
    SECRET_SET,
    SECRET_LIST,
    SECRET_ALLOW,
    SECRET_DENY,
    SECRET_REMOVE,
    SECRET_ROTATE,
    PERMISSION_ALLOW,
    PERMISSION_DENY,
    PERMISSION_LIST,
    PACKAGE_INSTALL,
    PACKAGE_ADD,
    PACKAGE_REMOVE,
    PACKAGE_LIST,
    OAUTH_LOGIN,
    OAUTH_LIST,
    OAUTH_SHOW,
    OAUTH_REVOKE,
    GC,
    BACKUP_CREATE,
    BACKUP_LIST,
    BACKUP_VERIFY,
    BACKUP_RESTORE,
    BACKUP_RESUME,
    BACKUP_PRUNE,
    BACKUP_IDENTITY,
    NODE_LIST,
    NODE_MOVE,
    NODE_DRAIN,
    NODE_LEAVE,
    WORKSPACE_LIST,
    WORKSPACE_CLOSE,
    TRACE,
    INCIDENT_EXPORT,
    INCIDENT_REPLAY,
    INCIDENT_TEST,
    WATCH,
    TOP,
    USAGE,
    AUDIT,
    RESTART,
    RELOAD,
    SHUTDOWN,
    VALIDATE,
    MIGRATE,
    IMPORT,
    TYPES,
    CONFIG_SHOW,
    CONFIG_EXPAND,
    STUDIO,
    METRICS,
    DEMO,
    DEMO_KILL,
    DEMO_NODES,
];
