//! An operation of the admin listener: what answers it, and what is said about it. Routes and their description are
//! made of the same values, so that neither can be without the other.

use std::borrow::Cow;

use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter, on};
use serde_json::{Value, json};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::AdminParts;
use super::error_codes::Code;
use super::wire::List;

/// What is asked of which path, what answers it, and how.
pub(super) struct Operation {
    pub(super) method: Method,
    pub(super) path: &'static str,
    pub(super) handler: MethodRouter<AdminParts>,
    /// Its name for programs that are made from the description.
    pub(super) id: &'static str,
    /// In a line.
    pub(super) summary: &'static str,
    /// What else there is to know.
    pub(super) remark: Option<&'static str>,
    pub(super) parameters: Vec<Parameter>,
    pub(super) body: Option<Content>,
    pub(super) answers: Vec<Answer>,
    /// The errors of its own; those that every operation has are not among them.
    pub(super) errors: Vec<Code>,
    /// Whether it is answered without the token.
    pub(super) is_open: bool,
}

/// The methods of the API.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

impl Method {
    /// As OpenAPI writes it.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Method::Get => "get",
            Method::Post => "post",
            Method::Put => "put",
            Method::Patch => "patch",
            Method::Delete => "delete",
        }
    }
}

/// A parameter in the query or, where the path has it in braces, in the path.
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) meaning: &'static str,
    pub(super) schema: Value,
}

/// What a body is.
#[derive(Clone, Copy)]
pub(super) enum Content {
    /// JSON of this schema; a body may be left out if it is not required.
    Json { schema: JsonContent, required: bool },
    /// Something else.
    Other(&'static str),
}

/// JSON of one type.
#[derive(Clone, Copy)]
pub(super) struct JsonContent {
    /// The type's name; none, if it is described where it stands.
    pub(super) name: Option<fn() -> Cow<'static, str>>,
    pub(super) schema: fn() -> RefOr<Schema>,
    /// What it refers to.
    pub(super) parts: fn(&mut Vec<(String, RefOr<Schema>)>),
}

impl JsonContent {
    /// JSON of a type that has a name.
    pub(super) fn of<T: ToSchema>() -> Self {
        Self { name: Some(T::name), schema: T::schema, parts: T::schemas }
    }

    /// A page of such.
    fn page_of<T: ToSchema>() -> Self {
        let parts = |parts: &mut Vec<(String, RefOr<Schema>)>| {
            T::schemas(parts);
            parts.push((T::name().into_owned(), T::schema()));
        };
        Self { name: None, schema: List::<T>::schema, parts }
    }
}

/// An answer that is no error.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) meaning: &'static str,
    pub(super) content: Content,
}

/// `GET` of a path.
pub(super) fn get<H, T>(path: &'static str, id: &'static str, handler: H) -> Operation
where
    H: Handler<T, AdminParts>,
    T: 'static,
{
    Operation::new(Method::Get, path, id, on(MethodFilter::GET, handler))
}

/// `POST` to a path.
pub(super) fn post<H, T>(path: &'static str, id: &'static str, handler: H) -> Operation
where
    H: Handler<T, AdminParts>,
    T: 'static,
{
    Operation::new(Method::Post, path, id, on(MethodFilter::POST, handler))
}

/// `PUT` to a path.
pub(super) fn put<H, T>(path: &'static str, id: &'static str, handler: H) -> Operation
where
    H: Handler<T, AdminParts>,
    T: 'static,
{
    Operation::new(Method::Put, path, id, on(MethodFilter::PUT, handler))
}

/// `PATCH` to a path.
pub(super) fn patch<H, T>(path: &'static str, id: &'static str, handler: H) -> Operation
where
    H: Handler<T, AdminParts>,
    T: 'static,
{
    Operation::new(Method::Patch, path, id, on(MethodFilter::PATCH, handler))
}

/// `DELETE` of a path.
pub(super) fn delete<H, T>(path: &'static str, id: &'static str, handler: H) -> Operation
where
    H: Handler<T, AdminParts>,
    T: 'static,
{
    Operation::new(Method::Delete, path, id, on(MethodFilter::DELETE, handler))
}

impl Operation {
    fn new(method: Method, path: &'static str, id: &'static str, handler: MethodRouter<AdminParts>) -> Self {
        Self {
            method,
            path,
            handler,
            id,
            summary: "",
            remark: None,
            parameters: Vec::new(),
            body: None,
            answers: Vec::new(),
            errors: Vec::new(),
            is_open: false,
        }
    }

    /// What it does, in a line.
    pub(super) fn does(self, summary: &'static str) -> Self {
        Self { summary, ..self }
    }

    /// What else there is to know.
    pub(super) fn remark(self, remark: &'static str) -> Self {
        Self { remark: Some(remark), ..self }
    }

    /// What the path's braces stand for.
    pub(super) fn of(self, name: &'static str, meaning: &'static str, schema: Value) -> Self {
        self.with(name, meaning, schema)
    }

    /// A parameter of the query.
    pub(super) fn with(mut self, name: &'static str, meaning: &'static str, schema: Value) -> Self {
        self.parameters.push(Parameter { name, meaning, schema });
        self
    }

    /// The parameters of a listing.
    pub(super) fn in_pages(self, after: Value) -> Self {
        use super::parameters::{PAGE_ROWS_DEFAULT, PAGE_ROWS_MAX};
        let limit = json!({"type": "integer", "minimum": 1, "maximum": PAGE_ROWS_MAX, "default": PAGE_ROWS_DEFAULT});
        self.with("after", "Only what comes after this one: the `next` of the page before.", after).with(
            "limit",
            "The most rows of the page. A page may be short, or empty, and still have a next one.",
            limit,
        )
    }

    /// The body that it wants.
    pub(super) fn takes<T: ToSchema>(self) -> Self {
        Self { body: Some(Content::Json { schema: JsonContent::of::<T>(), required: true }), ..self }
    }

    /// The body that it can do without.
    pub(super) fn may_take<T: ToSchema>(self) -> Self {
        Self { body: Some(Content::Json { schema: JsonContent::of::<T>(), required: false }), ..self }
    }

    /// The file that it wants.
    pub(super) fn takes_file(self) -> Self {
        Self { body: Some(Content::Other("application/octet-stream")), ..self }
    }

    /// What it answers.
    pub(super) fn answers<T: ToSchema>(self, meaning: &'static str) -> Self {
        self.also_answers::<T>(200, meaning)
    }

    /// A page of a listing.
    pub(super) fn answers_page_of<T: ToSchema>(mut self, meaning: &'static str) -> Self {
        let content = Content::Json { schema: JsonContent::page_of::<T>(), required: true };
        self.answers.push(Answer { status: 200, meaning, content });
        self
    }

    /// What it answers with another status.
    pub(super) fn also_answers<T: ToSchema>(mut self, status: u16, meaning: &'static str) -> Self {
        let content = Content::Json { schema: JsonContent::of::<T>(), required: true };
        self.answers.push(Answer { status, meaning, content });
        self
    }

    /// What it answers, if that is no JSON of the API's own.
    pub(super) fn answers_with(mut self, content_type: &'static str, meaning: &'static str) -> Self {
        self.answers.push(Answer { status: 200, meaning, content: Content::Other(content_type) });
        self
    }

    /// The errors of its own.
    pub(super) fn fails(mut self, codes: &[Code]) -> Self {
        self.errors.extend_from_slice(codes);
        self
    }

    /// Everybody may ask it.
    pub(super) fn open(self) -> Self {
        Self { is_open: true, ..self }
    }
}
