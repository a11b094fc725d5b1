//! Queries of pages. They are those of the API, so that each view is a link; of a form the fields that are empty count
//! as missing.

use axum::http::Uri;
use maud::{Markup, html};
use url::form_urlencoded::{Serializer, parse};

/// Query of a page.
#[derive(Debug, Clone, Default)]
pub(super) struct Asked {
    fields: Vec<(String, String)>,
}

impl Asked {
    /// Reads the query of an address.
    pub(super) fn of(uri: &Uri) -> Self {
        let fields = parse(uri.query().unwrap_or_default().as_bytes());
        let fields = fields
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| (name.into_owned(), value.into_owned()));
        Self {
            fields: fields.collect(),
        }
    }

    /// Returns a field.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.iter();
        fields
            .find(|(of, _)| of == name)
            .map(|(_, value)| value.as_str())
    }

    /// Takes a field out that is not one of the API.
    pub(super) fn take(&mut self, name: &str) -> Option<String> {
        let value = self.value(name).map(str::to_owned);
        self.fields.retain(|(of, _)| of != name);
        value
    }

    /// Returns the query with another value of a field; without the field if that is empty.
    pub(super) fn with(&self, name: &str, value: &str) -> Self {
        let mut changed = self.clone();
        changed.fields.retain(|(of, _)| of != name);
        if !value.is_empty() {
            changed.fields.push((name.to_owned(), value.to_owned()));
        }
        changed
    }

    /// Returns the query without some fields.
    pub(super) fn without(&self, names: &[&str]) -> Self {
        let mut changed = self.clone();
        changed.fields.retain(|(of, _)| !names.contains(&&**of));
        changed
    }

    /// Returns the address of a path with this query.
    pub(super) fn at(&self, path: &str) -> String {
        if self.fields.is_empty() {
            return path.to_owned();
        }
        let mut query = Serializer::new(String::new());
        query.extend_pairs(&self.fields);
        format!("{path}?{}", query.finish())
    }

    /// Returns fields of a form that keep these.
    pub(super) fn kept(&self, names: &[&str]) -> Markup {
        html! {
            @for (name, value) in self.fields.iter().filter(|(name, _)| names.contains(&&**name)) {
                input type="hidden" name=(name) value=(value);
            }
        }
    }
}

/// Shows views of a page of which one is chosen, each with its address.
pub(super) fn tabs(label: &str, views: &[(String, Markup, bool)]) -> Markup {
    html! {
        nav.tabs aria-label=(label) {
            @for (path, name, is_chosen) in views {
                a href=(path) aria-current=[is_chosen.then_some("true")] { (name) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_fields_of_a_form_are_none() {
        let asked = Asked::of(&"/ui/a?state=&tag=a%26b&text=x+y".parse().unwrap());
        assert_eq!(asked.value("state"), None);
        assert_eq!(asked.value("tag"), Some("a&b"));
        assert_eq!(asked.at("/v1/a"), "/v1/a?tag=a%26b&text=x+y");
        assert_eq!(asked.with("tag", "").at("/v1/a"), "/v1/a?text=x+y");
        assert_eq!(asked.without(&["tag", "text"]).at("/v1/a"), "/v1/a");
        let mut asked = asked.with("text", "<b>");
        assert_eq!(asked.take("text").as_deref(), Some("<b>"));
        assert_eq!(asked.at("/v1/a"), "/v1/a?tag=a%26b");
    }
}
