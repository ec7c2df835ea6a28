//! `docs/metrics.md`: descriptions match the catalog.

use goondan_protocol::metrics::Metric;

use crate::pages::Page;

#[test]
fn obs_3_every_metric_has_its_row_and_no_other() {
    let page = Page::read("docs/metrics.md").section("## What is counted");
    let known: Vec<Vec<String>> = Metric::ALL
        .iter()
        .map(|metric| {
            let info = metric.info();
            let labels = info.labels.iter();
            let labels: Vec<String> = labels
                .map(|label| format!("`{}`", label.as_str()))
                .collect();
            let name = format!("`{}`", metric.sample_name());
            let kind = info.kind.as_str().to_owned();
            vec![name, kind, labels.join(", "), info.help.to_owned()]
        })
        .collect();
    assert_eq!(page.rows(), known);
}
