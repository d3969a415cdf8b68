use http_body_util::Full;

use super::*;
use crate::env;
use crate::outbound::sink::{Answer, Sink};

const BYTES_MAX: usize = 1024;
/// Long enough for a loaded machine.
const AMPLE: Duration = Duration::from_secs(20);

async fn call(client: &Client, url: &str, time: Duration) -> Result<Response, CallFailure> {
    let request = Request::get(url).body(Full::default()).unwrap();
    client.call(request, BYTES_MAX, env::deadline(time)).await
}

async fn answered(answer: Answer, time: Duration) -> Result<Response, CallFailure> {
    let sink = Sink::start(move |_| answer.clone()).await;
    call(&Client::allowing(&["127.0.0.0/8"]), &format!("http://{}/", sink.address), time).await
}

#[tokio::test]
async fn a_whole_answer_is_returned_as_it_came() {
    let answer = Answer::Raw("HTTP/1.1 207 Said\r\nx-a: 1\r\ncontent-length: 2\r\n\r\nok".to_owned());
    let response = answered(answer, AMPLE).await.unwrap();
    assert_eq!((response.status.as_u16(), &response.body[..]), (207, &b"ok"[..]));
    assert_eq!(response.headers["x-a"], "1");
}

#[tokio::test]
async fn no_more_is_read_than_the_bound_whatever_the_length_says() {
    let too_long = Err(CallFailure::TooLong { bytes_max: BYTES_MAX });
    let announced = Answer::Raw("HTTP/1.1 200 Said\r\ncontent-length: 104857600\r\n\r\n".to_owned());
    assert_eq!(answered(announced, AMPLE).await.map(|_| ()), too_long);
    let flood = Answer::Flood("HTTP/1.1 200 Said\r\ntransfer-encoding: chunked\r\n\r\n".to_owned());
    assert_eq!(answered(flood, AMPLE).await.map(|_| ()), too_long);
}

#[tokio::test]
async fn one_that_never_ends_or_breaks_off_is_no_answer() {
    let drip = Answer::Drip("HTTP/1.1 200 Said\r\ncontent-length: 1000\r\n\r\n".to_owned());
    assert_eq!(answered(drip, Duration::from_millis(100)).await.map(|_| ()), Err(CallFailure::TimedOut));
    assert_eq!(answered(Answer::Never, Duration::from_millis(100)).await.map(|_| ()), Err(CallFailure::TimedOut));
    let cut = Answer::BreakOff("HTTP/1.1 200 Said\r\ncontent-length: 10\r\n\r\nxx".to_owned());
    assert!(matches!(answered(cut, AMPLE).await, Err(CallFailure::Broken(_))));
}

#[tokio::test]
async fn a_private_address_is_not_called_and_a_redirect_to_one_is_not_followed() {
    let sink = Sink::start(|_| Answer::status(200)).await;
    let url = format!("http://{}/", sink.address);
    assert!(matches!(call(&Client::allowing(&[]), &url, AMPLE).await, Err(CallFailure::Denied(_))));
    assert!(matches!(call(&Client::allowing(&[]), "http://127.1/", AMPLE).await, Err(CallFailure::Denied(_))));
    let redirect = format!("HTTP/1.1 302 Said\r\nlocation: {url}\r\ncontent-length: 0\r\n\r\n");
    let response = answered(Answer::Raw(redirect), AMPLE).await.unwrap();
    assert_eq!(response.status, StatusCode::FOUND);
}
