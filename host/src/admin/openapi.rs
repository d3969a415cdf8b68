//! The description of the API in OpenAPI 3.1, made from the table of operations and the types on the wire.

use std::collections::BTreeMap;

use axum::response::{IntoResponse, Response};
use http::header;
use serde_json::{Map, Value, json};

use super::error_codes::{Code, EVERYWHERE};
use super::operations::{Content, JsonContent, Operation};
use super::routes::operations;
use super::wire::ErrorBody;

const ABOUT: &str = "\
The admin listener of a Forebay host: health, metrics, and the API that the console and the commands use.

Every error is an `ErrorBody` whose `code` is one of the words under its status. After a `503`, retry after the time in \
`Retry-After`. Times are RFC 3339 in UTC. Every list is called `items`. Events and messages come in pages, newest first: \
the `next` of a page is the `after` of the following one. A page may be short or empty and still have a next one.";

/// `GET /api/v1/openapi.json`.
pub(super) async fn show() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], document().to_string()).into_response()
}

/// The description.
pub fn document() -> Value {
    let mut schemas = Schemas::default();
    let error = schemas.of(JsonContent::of::<ErrorBody>());
    let mut paths = Map::new();
    for operation in operations() {
        let described = describe(&operation, &mut schemas, &error);
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method.as_str()] = described;
    }
    json!({
        "openapi": "3.1.1",
        "info": {
            "title": "Forebay",
            "version": env!("CARGO_PKG_VERSION"),
            "description": ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {
                "type": "http",
                "scheme": "bearer",
                "description": "The value of `admin.token`. A host on loopback may have no token; then none is needed.",
            }},
            "schemas": schemas.finish(),
        },
    })
}

fn describe(operation: &Operation, schemas: &mut Schemas, error: &Value) -> Value {
    let mut described = json!({"operationId": operation.id, "summary": operation.summary});
    if let Some(remark) = operation.remark {
        described["description"] = remark.into();
    }
    if operation.is_open {
        described["security"] = json!([]);
    }
    if !operation.parameters.is_empty() {
        described["parameters"] = operation
            .parameters
            .iter()
            .map(|parameter| {
                let in_path = operation.path.contains(&format!("{{{}}}", parameter.name));
                json!({
                    "name": parameter.name,
                    "in": if in_path { "path" } else { "query" },
                    "required": in_path,
                    "description": parameter.meaning,
                    "schema": parameter.schema,
                })
            })
            .collect();
    }
    if let Some(body) = operation.body {
        let required = matches!(body, Content::Json { required: true, .. } | Content::Other(_));
        described["requestBody"] = json!({"required": required, "content": content(body, schemas)});
    }
    described["responses"] = responses(operation, schemas, error);
    described
}

fn responses(operation: &Operation, schemas: &mut Schemas, error: &Value) -> Value {
    let mut responses = Map::new();
    for answer in &operation.answers {
        let content = content(answer.content, schemas);
        responses.insert(answer.status.to_string(), json!({"description": answer.meaning, "content": content}));
    }
    if operation.is_open {
        return responses.into();
    }
    let mut by_status: BTreeMap<u16, Vec<Code>> = BTreeMap::new();
    for code in EVERYWHERE.iter().chain(&operation.errors) {
        let codes = by_status.entry(code.status).or_default();
        if !codes.contains(code) {
            codes.push(*code);
        }
    }
    for (status, codes) in by_status {
        let lines: Vec<String> = codes.iter().map(|code| format!("- `{}`: {}", code.word, code.meaning)).collect();
        let content = json!({"application/json": {"schema": error}});
        responses.insert(status.to_string(), json!({"description": lines.join("\n"), "content": content}));
    }
    responses.into()
}

fn content(content: Content, schemas: &mut Schemas) -> Value {
    match content {
        Content::Json { schema, .. } => json!({"application/json": {"schema": schemas.of(schema)}}),
        Content::Other(content_type) => json!({content_type: {}}),
    }
}

/// Referenced schemas by name.
#[derive(Default)]
struct Schemas(BTreeMap<String, Value>);

impl Schemas {
    /// The schema of a body; schemas that it refers to are kept.
    fn of(&mut self, content: JsonContent) -> Value {
        let mut parts = Vec::new();
        (content.parts)(&mut parts);
        let own = (content.schema)();
        let described = match content.name {
            None => json!(own),
            Some(name) => {
                let name = name().into_owned();
                let described = json!({"$ref": format!("#/components/schemas/{name}")});
                parts.push((name, own));
                described
            }
        };
        for (name, schema) in parts {
            let mut schema = json!(schema);
            unlink(&mut schema);
            self.0.insert(name, schema);
        }
        described
    }

    fn finish(self) -> Value {
        self.0.into_iter().collect()
    }
}

/// Turns links between items of the source into names.
fn unlink(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if let Some(Value::String(text)) = map.get_mut("description") {
                *text = text.replace("[`", "`").replace("`]", "`").replace('\n', " ");
            }
            map.values_mut().for_each(unlink);
        }
        Value::Array(items) => items.iter_mut().for_each(unlink),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
