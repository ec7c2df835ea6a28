//! The projects of a connection. As in GitLab, capital and small letters are equal in paths.

use serde_json::Value;

use super::origin;

/// The only projects that a connection listens to and writes to.
#[derive(Debug)]
pub(super) struct Projects {
    /// Paths in lower case, or IDs; `None` for all.
    listed: Option<Vec<String>>,
    /// Written to in addition.
    written_to: Vec<String>,
}

impl Projects {
    pub(super) fn new(listed: Option<&[String]>, written_to: &[String]) -> Self {
        let lower = |names: &[String]| names.iter().map(|name| name.to_lowercase()).collect();
        Self {
            listed: listed.map(lower),
            written_to: lower(written_to),
        }
    }

    /// True if an event is of a listed project. Events of groups are of none.
    pub(super) fn has_event(&self, body: &Value) -> bool {
        let Some(listed) = &self.listed else {
            return true;
        };
        let path = origin::project(body).map(str::to_lowercase);
        let id = origin::project_id(body).map(|id| id.to_string());
        [path, id]
            .into_iter()
            .flatten()
            .any(|name| listed.contains(&name))
    }

    /// True if agents may read and write a project.
    pub(super) fn may_use(&self, name: &str) -> bool {
        let Some(listed) = &self.listed else {
            return true;
        };
        let name = name.to_lowercase();
        listed.contains(&name) || self.written_to.contains(&name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn conn_1_projects_are_listed_by_path_or_id() {
        let listed = ["Acme/Shop".to_owned(), "77".to_owned()];
        let projects = Projects::new(Some(&listed), &["acme/docs".to_owned()]);
        let event =
            |id: u64, path: &str| json!({"project": {"id": id, "path_with_namespace": path}});
        for (id, path, is_listed) in [
            (1, "acme/SHOP", true),
            (77, "any/name", true),
            (2, "acme/docs", false),
        ] {
            assert_eq!(projects.has_event(&event(id, path)), is_listed, "{path}");
        }
        let link = "https://example.com/acme/shop/-/security/vulnerabilities/1";
        assert!(projects.has_event(&json!({"object_attributes": {"url": link}})));
        assert!(!projects.has_event(&json!({"group_path": "acme"})));
        assert!(projects.may_use("ACME/shop") && projects.may_use("acme/docs"));
        assert!(!projects.may_use("acme/other"));
        let all = Projects::new(None, &[]);
        assert!(all.has_event(&json!({})) && all.may_use("x/y"));
    }
}
