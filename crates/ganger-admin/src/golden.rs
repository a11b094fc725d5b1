//! Test of the API description against the published one.

use std::path::Path;

use super::document;

#[test]
fn the_published_description_is_that_of_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto-spec/openapi.json");
    let document = format!("{}\n", document());
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(&path, &document).unwrap();
    }
    let hint = "run this test with UPDATE_REFERENCE=1 to write proto-spec/openapi.json anew";
    assert!(
        std::fs::read_to_string(&path).unwrap_or_default() == document,
        "{hint}"
    );
}

/// Every route that answers is described.
#[test]
fn every_route_says_what_it_does_and_how_it_fails() {
    let document: serde_json::Value = serde_json::from_str(&document()).unwrap();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let said = operation["summary"]
                .as_str()
                .or(operation["description"].as_str());
            assert!(said.is_some_and(|text| !text.is_empty()), "{method} {path}");
            let answers = ["200", "202"].map(|status| operation["responses"][status].is_object());
            assert!(answers.contains(&true), "{method} {path}");
        }
    }
}
