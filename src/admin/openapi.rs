//! The description of the API, made from its code.

use axum::Router;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{
    ComponentsBuilder, InfoBuilder, LicenseBuilder, OpenApi, OpenApiBuilder, SecurityRequirement,
};

use super::context::Context;

/// What the description begins with.
pub(super) fn head() -> OpenApi {
    let license = LicenseBuilder::new()
        .name("Apache-2.0")
        .identifier(Some("Apache-2.0"))
        .build();
    let info = InfoBuilder::new()
        .title("ganger")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "The admin API of a ganger daemon: how it stands, and what may be asked of it. On its \
             unix socket it needs no token; errors are problem documents (RFC 9457). Fields may be \
             added, and are never renamed.",
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

/// Where it is served.
pub(super) fn routes(document: &OpenApi) -> Router<Context> {
    let text = document.to_json().unwrap_or_default();
    let json = [(header::CONTENT_TYPE, "application/json")];
    let served = move || async move { (json, text).into_response() };
    Router::new().route("/openapi.json", get(served))
}
