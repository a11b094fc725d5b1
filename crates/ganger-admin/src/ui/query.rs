//! Queries of pages. They are those of the API, so that each view is a link; the fields of a form that are empty count
//! as missing.

use axum::http::Uri;
use maud::{Markup, html};
use url::form_urlencoded::{Serializer, parse};

/// Fields of a query.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Fields(Vec<(String, String)>);

/// Makes a query of fields, each with its value.
impl<const N: usize> From<[(&str, &str); N]> for Fields {
    fn from(fields: [(&str, &str); N]) -> Self {
        let fields = fields.iter();
        fields.fold(Self::default(), |sum, (name, value)| sum.with(name, value))
    }
}

impl Fields {
    /// Reads the query of an address.
    pub(super) fn of(uri: &Uri) -> Self {
        let fields = parse(uri.query().unwrap_or_default().as_bytes()).into_owned();
        Self(
            fields
                .filter(|(_, value)| !value.trim().is_empty())
                .collect(),
        )
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the fields in their order, each with its value.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Returns the value of a field.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let mut fields = self.iter();
        fields.find(|(own, _)| *own == name).map(|(_, value)| value)
    }

    /// Takes a field out that is not one of the API.
    pub(super) fn take(&mut self, name: &str) -> Option<String> {
        let value = self.get(name).map(str::to_owned);
        self.0.retain(|(own, _)| own != name);
        value
    }

    /// Returns the query with another value of a field; without the field if that is empty.
    pub(super) fn with(&self, name: &str, value: &str) -> Self {
        let mut changed = self.without(&[name]);
        if !value.is_empty() {
            changed.0.push((name.to_owned(), value.to_owned()));
        }
        changed
    }

    /// Returns the query without some fields.
    pub(super) fn without(&self, names: &[&str]) -> Self {
        let mut changed = self.clone();
        changed.0.retain(|(own, _)| !names.contains(&&**own));
        changed
    }

    /// Returns the fields of these names alone, in the order of the names.
    pub(super) fn only(&self, names: &[&str]) -> Self {
        let given = names
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), self.get(name)?.to_owned())));
        Self(given.collect())
    }

    /// Returns the address of a path with this query.
    pub(super) fn at(&self, path: &str) -> String {
        if self.is_empty() {
            return path.to_owned();
        }
        let mut query = Serializer::new(String::new());
        query.extend_pairs(&self.0);
        format!("{path}?{}", query.finish())
    }

    /// Shows the fields as hidden ones of a form, which keeps them.
    pub(super) fn hidden(&self) -> Markup {
        html! { @for (name, value) in self.iter() { input type="hidden" name=(name) value=(value); } }
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
        let fields = Fields::of(&"/ui/a?state=&tag=a%26b&since=+&text=x+y".parse().unwrap());
        assert_eq!(fields.get("state"), None);
        assert_eq!(fields.get("tag"), Some("a&b"));
        assert_eq!(fields.at("/v1/a"), "/v1/a?tag=a%26b&text=x+y");
        assert_eq!(fields.with("tag", "").at("/v1/a"), "/v1/a?text=x+y");
        assert_eq!(fields.without(&["tag", "text"]).at("/v1/a"), "/v1/a");
        let some = fields.only(&["text", "since", "tag"]);
        assert_eq!(some, Fields::from([("text", "x y"), ("tag", "a&b")]));
        let mut fields = fields.with("text", "<b>");
        assert_eq!(fields.take("text").as_deref(), Some("<b>"));
        assert_eq!(fields.at("/v1/a"), "/v1/a?tag=a%26b");
    }
}
