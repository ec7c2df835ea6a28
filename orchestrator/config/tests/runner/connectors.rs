//! Every example on the pages of the connectors is a good project.

use crate::support::Project;

const PAGES: [&str; 8] = [
    include_str!("../../../../docs/connectors.md"),
    include_str!("../../../../docs/connectors/cron.md"),
    include_str!("../../../../docs/connectors/telegram.md"),
    include_str!("../../../../docs/connectors/slack.md"),
    include_str!("../../../../docs/connectors/github.md"),
    include_str!("../../../../docs/connectors/discord.md"),
    include_str!("../../../../docs/connectors/otlp.md"),
    include_str!("../../../../docs/connectors/program.md"),
];

#[test]
fn every_example_of_a_connectors_page_loads() {
    for page in PAGES {
        let examples: Vec<&str> = page
            .split("```yaml\n")
            .skip(1)
            .filter_map(|rest| rest.split("```").next())
            .collect();
        assert!(!examples.is_empty());
        for example in examples {
            let mut project = Project::with(example).file("connectors/tail.py", "");
            for variable in [
                "HOOK_SECRET",
                "SLACK_SIGNING_SECRET",
                "GITHUB_WEBHOOK_SECRET",
                "TELEGRAM_TOKEN",
                "OTLP_AUTHORIZATION",
            ] {
                project = project.variable(variable, "s");
            }
            let bundle = project.load();
            assert!(!bundle.connections.is_empty() || bundle.local.is_some());
        }
    }
}
