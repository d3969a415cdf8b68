//! What a request may have of what is dear to check, and where it may have it.

use super::*;

// ADM-1, ADM-4
#[test]
fn a_form_has_so_many_fields_and_a_header_so_many_signatures_at_the_most() {
    let fields = |count: usize| (0..count).map(|field| format!("f{field}=v")).collect::<Vec<_>>().join("&");
    for (count, expected) in [(1_024, Ok(())), (1_025, Err(Refusal::SignatureMalformed))] {
        let mut twilio = Case::signed("twilio");
        twilio.body = fields(1).into();
        twilio.sign();
        twilio.body = fields(count).into();
        if expected.is_ok() {
            twilio.sign();
        }
        assert_eq!(twilio.verify(), expected, "{count} fields");
    }
    let mut stripe = Case::signed("stripe");
    let right = stripe.signature_header();
    let wrong = format!(",v1={}", "0".repeat(64));
    for (others, expected) in [(7, Ok(())), (8, Err(Refusal::SignatureMalformed))] {
        stripe.replace("stripe-signature", format!("{right}{}", wrong.repeat(others)).as_bytes());
        assert_eq!(stripe.verify(), expected, "{others} others");
    }
}

// ADM-4: the text of a form that was signed must not become an address with another body.
#[test]
fn the_hash_of_a_body_counts_at_the_end_of_the_address_only() {
    let mut twilio = Case::signed("twilio");
    let hash = HEXLOWER_PERMISSIVE.encode(&Sha256::digest(&twilio.body));
    for (query, expected) in [
        (format!("a=1&bodySHA256={hash}"), Ok(())),
        (format!("a=1&bodySHA256={hash}&From=x"), Err(Refusal::SignatureWrong)),
        (format!("a=1&bodySHA256={}", "0".repeat(64)), Err(Refusal::SignatureWrong)),
        ("a=1&bodySHA256=".to_owned(), Err(Refusal::SignatureWrong)),
        ("a=1&bodySHA256=x".to_owned(), Err(Refusal::SignatureMalformed)),
    ] {
        let uri = format!("https://www.example.com/sms?{query}");
        let signature = key::keyed_hash(SignatureHash::Sha1, b"secret key", &[&uri]);
        twilio.replace("x-twilio-signature", BASE64.encode(&signature).as_bytes());
        let request = Signed { uri: &uri, ..twilio.request() };
        assert_eq!(verify(&twilio.verification, request, &twilio.secrets, twilio.now), expected, "{query}");
    }
}
