//! The OpenAPI description, generated from the code.

use axum::Router;
use axum::http::{Method, header};
use axum::response::IntoResponse;
use axum::routing::get;
use utoipa::openapi::extensions::ExtensionsBuilder;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{
    ComponentsBuilder, Content, ContentBuilder, InfoBuilder, LicenseBuilder, OpenApi,
    OpenApiBuilder, Ref, RefOr, ResponseBuilder, Schema, SecurityRequirement,
};

use super::context::Context;
use super::roles::{PROBES, required};

/// Media types of answers.
const JSON: &str = "application/json";
const PROBLEM: &str = "application/problem+json";

/// Returns the head of the description.
pub(super) fn head() -> OpenApi {
    let license = LicenseBuilder::new()
        .name("Apache-2.0")
        .identifier(Some("Apache-2.0"))
        .build();
    let info = InfoBuilder::new()
        .title("ganger")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "The admin API of a ganger daemon, for inspecting and controlling it. No token is \
             needed on its unix socket; elsewhere it is needed for everything except health. \
             `x-role` is the role that an operation requires: viewer, operator or admin, each of \
             which includes those before it. Errors are problem documents (RFC 9457). Fields may be added, and are never renamed.",
        ))
        .license(Some(license))
        .build();
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
    let components = ComponentsBuilder::new()
        .security_scheme("token", SecurityScheme::Http(bearer))
        .build();
    let either = [
        SecurityRequirement::default(),
        SecurityRequirement::new::<_, [&str; 0], &str>("token", []),
    ];
    OpenApiBuilder::new()
        .info(info)
        .components(Some(components))
        .security(Some(either))
        .build()
}

/// Adds to each operation the role that it requires, and the problem document with which it can be refused, which is
/// not plain JSON.
pub(super) fn with_problems(mut document: OpenApi) -> OpenApi {
    let problem = ContentBuilder::new()
        .schema(Some(Ref::from_schema_name("Problem")))
        .build();
    let refused = ResponseBuilder::new()
        .description("Refused, or not possible now")
        .content(PROBLEM, problem)
        .build();
    for (path, item) in &mut document.paths.paths {
        let operations = [
            (Method::GET, &mut item.get),
            (Method::PUT, &mut item.put),
            (Method::POST, &mut item.post),
            (Method::PATCH, &mut item.patch),
            (Method::DELETE, &mut item.delete),
        ];
        for (method, operation) in operations {
            let Some(operation) = operation else { continue };
            let role = match PROBES.contains(&path.as_str()) {
                true => "none".to_owned(),
                false => required(&method, path).to_string(),
            };
            operation.extensions = Some(ExtensionsBuilder::new().add("x-role", role).build());
            if let Some(RefOr::T(body)) = &mut operation.request_body {
                body.content.values_mut().for_each(never_null);
            }
            let responses = &mut operation.responses.responses;
            for response in responses.values_mut() {
                if let RefOr::T(response) = response
                    && response.content.get(JSON).is_some_and(is_problem)
                    && let Some(content) = response.content.shift_remove(JSON)
                {
                    response.content.insert(PROBLEM.into(), content);
                }
            }
            responses.insert("default".into(), RefOr::T(refused.clone()));
        }
    }
    document
}

/// Describes a body that may be left out as what it is if it is there. Generators can't leave out what may be null.
fn never_null(content: &mut RefOr<Content>) {
    if let RefOr::T(content) = content
        && let Some(RefOr::T(Schema::OneOf(either))) = &content.schema
    {
        let mut items = either.items.iter();
        let own = items.find(|item| matches!(item, RefOr::Ref(_)));
        content.schema = own.cloned();
    }
}

fn is_problem(content: &RefOr<Content>) -> bool {
    match content {
        RefOr::T(Content {
            schema: Some(RefOr::Ref(reference)),
            ..
        }) => reference.ref_location.ends_with("/Problem"),
        RefOr::T(_) | RefOr::Ref(_) => false,
    }
}

/// Returns the route of the description.
pub(super) fn routes(document: &OpenApi) -> Router<Context> {
    let text = document.to_json().unwrap_or_default();
    let json = [(header::CONTENT_TYPE, JSON)];
    let served = move || async move { (json, text).into_response() };
    Router::new().route("/openapi.json", get(served))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    #[test]
    fn each_operation_can_be_refused_with_a_problem_document() {
        let document: Value = serde_json::from_str(&crate::document()).unwrap();
        for (path, operations) in document["paths"].as_object().unwrap() {
            for (method, operation) in operations.as_object().unwrap() {
                let refused = &operation["responses"]["default"]["content"];
                let refused = refused.get(super::PROBLEM);
                assert!(refused.is_some(), "{method} {path}");
            }
        }
    }
}
