//! Queries of pages, which are those of the API.

use axum::http::Uri;
use url::form_urlencoded;

/// Fields of a query, without those that are empty: a form sends all that it has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Fields(Vec<(String, String)>);

impl Fields {
    /// Reads the query of a page.
    pub(super) fn of(uri: &Uri) -> Self {
        let query = uri.query().unwrap_or_default();
        let fields = form_urlencoded::parse(query.as_bytes()).into_owned();
        Self(
            fields
                .filter(|(_, value)| !value.trim().is_empty())
                .collect(),
        )
    }

    /// Returns the value of a field.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(own, _)| own == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Returns the fields of these names alone, each with its value.
    pub(super) fn only<'a>(&'a self, names: &[&'static str]) -> Vec<(&'static str, &'a str)> {
        let given = names
            .iter()
            .filter_map(|name| Some((*name, self.get(name)?)));
        given.collect()
    }
}

/// Returns a path with a query of these fields.
pub(super) fn at(path: &str, fields: &[(&str, &str)]) -> String {
    if fields.is_empty() {
        return path.to_owned();
    }
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(fields);
    format!("{path}?{}", query.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_empty_fields_of_a_form_are_no_filter() {
        let uri: Uri = "/ui/dead/main?pool=&error=a%26b+c&since=+&other=1"
            .parse()
            .unwrap();
        let all = Fields::of(&uri);
        let fields = all.only(&["pool", "error", "since"]);
        assert_eq!(fields, [("error", "a&b c")]);
        assert_eq!(at("/v1/a", &fields), "/v1/a?error=a%26b+c");
        assert_eq!(at("/v1/a", &[]), "/v1/a");
    }
}
