//! An operation of the admin listener: its handler and its description. Routes and description are made of the same
//! values, so that neither exists without the other.

use std::borrow::Cow;

use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter, on};
use serde_json::{Value, json};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::AdminParts;
use super::error_codes::Code;
use super::wire::List;

/// A method of a path, with its handler and its description.
pub(super) struct Operation {
    pub(super) method: Method,
    pub(super) path: &'static str,
    pub(super) handler: MethodRouter<AdminParts>,
    /// Its name for generated clients.
    pub(super) id: &'static str,
    /// One line, in the third person, without a full stop.
    pub(super) summary: &'static str,
    /// Further sentences.
    pub(super) remark: Option<&'static str>,
    pub(super) parameters: Vec<Parameter>,
    pub(super) body: Option<Content>,
    pub(super) answers: Vec<Answer>,
    /// Its errors beyond those of every operation.
    pub(super) errors: Vec<Code>,
    /// Whether it needs no token.
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
    /// The name in OpenAPI.
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

/// The content of a body.
#[derive(Clone, Copy)]
pub(super) enum Content {
    /// JSON of this schema; the body may be missing unless `required`.
    Json { schema: JsonContent, required: bool },
    /// Another content type.
    Other(&'static str),
}

/// JSON of one type.
#[derive(Clone, Copy)]
pub(super) struct JsonContent {
    /// The type's name; `None` if it is described in place.
    pub(super) name: Option<fn() -> Cow<'static, str>>,
    pub(super) schema: fn() -> RefOr<Schema>,
    /// Schemas that it refers to.
    pub(super) parts: fn(&mut Vec<(String, RefOr<Schema>)>),
}

impl JsonContent {
    /// JSON of a named type.
    pub(super) fn of<T: ToSchema>() -> Self {
        Self { name: Some(T::name), schema: T::schema, parts: T::schemas }
    }

    /// A page of a listing of `T`.
    fn page_of<T: ToSchema>() -> Self {
        let parts = |parts: &mut Vec<(String, RefOr<Schema>)>| {
            T::schemas(parts);
            parts.push((T::name().into_owned(), T::schema()));
        };
        Self { name: None, schema: List::<T>::schema, parts }
    }
}

/// An answer that is not an error.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) meaning: &'static str,
    pub(super) content: Content,
}

macro_rules! methods {
    ($($name:ident = $method:ident, $filter:ident;)*) => {
        $(
            #[doc = concat!("`", stringify!($filter), "` of a path.")]
            pub(super) fn $name<H, T>(path: &'static str, id: &'static str, handler: H) -> Operation
            where
                H: Handler<T, AdminParts>,
                T: 'static,
            {
                Operation::new(Method::$method, path, id, on(MethodFilter::$filter, handler))
            }
        )*
    };
}

methods! {
    get = Get, GET;
    post = Post, POST;
    put = Put, PUT;
    patch = Patch, PATCH;
    delete = Delete, DELETE;
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

    /// Sets the summary.
    pub(super) fn does(self, summary: &'static str) -> Self {
        Self { summary, ..self }
    }

    /// Sets the remark.
    pub(super) fn remark(self, remark: &'static str) -> Self {
        Self { remark: Some(remark), ..self }
    }

    /// Adds a parameter of the path.
    pub(super) fn of(self, name: &'static str, meaning: &'static str, schema: Value) -> Self {
        self.with(name, meaning, schema)
    }

    /// Adds a parameter of the query.
    pub(super) fn with(mut self, name: &'static str, meaning: &'static str, schema: Value) -> Self {
        self.parameters.push(Parameter { name, meaning, schema });
        self
    }

    /// Adds the parameters of a listing.
    pub(super) fn in_pages(self, after: Value) -> Self {
        use super::parameters::{PAGE_ROWS_DEFAULT, PAGE_ROWS_MAX};
        let limit = json!({"type": "integer", "minimum": 1, "maximum": PAGE_ROWS_MAX, "default": PAGE_ROWS_DEFAULT});
        self.with("after", "Start after this id: the `next` of the previous page.", after).with(
            "limit",
            "The largest number of rows. A page may be short or empty and still have a next one.",
            limit,
        )
    }

    /// Requires a JSON body.
    pub(super) fn takes<T: ToSchema>(self) -> Self {
        Self { body: Some(Content::Json { schema: JsonContent::of::<T>(), required: true }), ..self }
    }

    /// Accepts a JSON body.
    pub(super) fn may_take<T: ToSchema>(self) -> Self {
        Self { body: Some(Content::Json { schema: JsonContent::of::<T>(), required: false }), ..self }
    }

    /// Requires a file as its body.
    pub(super) fn takes_file(self) -> Self {
        Self { body: Some(Content::Other("application/octet-stream")), ..self }
    }

    /// Adds the answer with status 200.
    pub(super) fn answers<T: ToSchema>(self, meaning: &'static str) -> Self {
        self.also_answers::<T>(200, meaning)
    }

    /// Adds the answer of a listing.
    pub(super) fn answers_page_of<T: ToSchema>(mut self, meaning: &'static str) -> Self {
        let content = Content::Json { schema: JsonContent::page_of::<T>(), required: true };
        self.answers.push(Answer { status: 200, meaning, content });
        self
    }

    /// Adds an answer with another status.
    pub(super) fn also_answers<T: ToSchema>(mut self, status: u16, meaning: &'static str) -> Self {
        let content = Content::Json { schema: JsonContent::of::<T>(), required: true };
        self.answers.push(Answer { status, meaning, content });
        self
    }

    /// Adds an answer that is not JSON of the API.
    pub(super) fn answers_with(mut self, content_type: &'static str, meaning: &'static str) -> Self {
        self.answers.push(Answer { status: 200, meaning, content: Content::Other(content_type) });
        self
    }

    /// Adds errors.
    pub(super) fn fails(mut self, codes: &[Code]) -> Self {
        self.errors.extend_from_slice(codes);
        self
    }

    /// Needs no token.
    pub(super) fn open(self) -> Self {
        Self { is_open: true, ..self }
    }
}
