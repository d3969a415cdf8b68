use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::body::{Frame, SizeHint};
use metrics::Gauge;

use super::super::budget::Budget;
use super::*;

/// A body that arrives in these pieces; an `Err` breaks it off.
struct Pieces {
    pieces: VecDeque<Result<Frame<Bytes>, &'static str>>,
    declared: Option<u64>,
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        Poll::Ready(self.pieces.pop_front())
    }

    fn size_hint(&self) -> SizeHint {
        self.declared.map(SizeHint::with_exact).unwrap_or_default()
    }
}

fn pieces(declared: Option<u64>, lengths: &[usize]) -> Pieces {
    let data = |&length: &usize| Ok(Frame::data(Bytes::from(vec![b'x'; length])));
    Pieces { pieces: lengths.iter().map(data).collect(), declared }
}

fn budget(bytes_max: usize) -> Arc<Budget> {
    Budget::new(1, bytes_max, Gauge::noop(), Gauge::noop())
}

async fn collected(mut body: Pieces, bytes_max: usize, budget_bytes: usize) -> Result<usize, Refusal> {
    let mut share = budget(budget_bytes).admit().unwrap();
    collect(&mut body, bytes_max, &mut share).await.map(|bytes| bytes.len())
}

#[tokio::test]
async fn a_body_is_put_together_from_its_pieces_whether_its_length_is_declared_or_not() {
    for lengths in [&[][..], &[7], &[7, 1], &[1; 100], &[60_000; 5]] {
        let total = lengths.iter().sum::<usize>();
        assert_eq!(collected(pieces(Some(total as u64), lengths), 400_000, 400_000).await, Ok(total));
        assert_eq!(collected(pieces(None, lengths), 400_000, 400_000).await, Ok(total));
    }
}

#[tokio::test]
async fn pieces_keep_their_order_and_trailers_are_no_data() {
    let mut body = pieces(None, &[]);
    for text in ["a", "b", "c"] {
        body.pieces.push_back(Ok(Frame::data(Bytes::from_static(text.as_bytes()))));
    }
    body.pieces.push_back(Ok(Frame::trailers(http::HeaderMap::new())));
    let mut share = budget(1_000_000).admit().unwrap();
    assert_eq!(collect(&mut body, 100, &mut share).await, Ok(Bytes::from_static(b"abc")));
}

// ADM-4
#[tokio::test]
async fn a_body_over_the_cap_is_refused_by_its_declaration_or_when_it_gets_there() {
    assert_eq!(collected(pieces(Some(11), &[]), 10, 1_000).await, Err(Refusal::TooLarge));
    assert_eq!(collected(pieces(Some(u64::MAX), &[]), 10, 1_000).await, Err(Refusal::TooLarge));
    assert_eq!(collected(pieces(None, &[5, 5]), 10, 1_000).await, Ok(10));
    assert_eq!(collected(pieces(None, &[5, 6]), 10, 1_000).await, Err(Refusal::TooLarge));
}

// ADM-4
#[tokio::test]
async fn a_body_that_breaks_off_is_no_body() {
    let mut body = pieces(Some(10), &[5]);
    body.pieces.push_back(Err("connection reset"));
    assert_eq!(collected(body, 10, 1_000).await, Err(Refusal::Truncated));
}

// ADM-1
#[tokio::test]
async fn memory_is_taken_from_the_budget_as_it_is_needed_and_never_beyond() {
    let budget = budget(100_000);
    let mut share = budget.admit().unwrap();
    let mut body = pieces(Some(90_000), &[30_000, 30_000]);
    collect(&mut body, 90_000, &mut share).await.unwrap();
    assert_eq!(share.held(), BUFFER_BYTES_FIRST, "what was only announced is not held");
    drop(share);

    let mut share = budget.admit().unwrap();
    assert_eq!(collect(&mut pieces(None, &[60_000; 4]), 1_000_000, &mut share).await, Err(Refusal::BytesFull));
    drop(share);

    let mut share = budget.admit().unwrap();
    collect(&mut pieces(Some(7), &[7]), 1_000_000, &mut share).await.unwrap();
    assert_eq!(share.held(), 7);
}
