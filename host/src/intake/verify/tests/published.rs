//! Signatures as providers publish them. `published.json` names the source of each.

use super::*;

#[derive(serde::Deserialize)]
struct Published {
    preset: String,
    secret: String,
    signature: String,
    body: String,
    /// The address that it was sent to, if that is signed.
    uri: Option<String>,
    id: Option<String>,
    timestamp: Option<String>,
}

impl Published {
    fn case(&self) -> Case {
        let mut case = Case::new(signature_of(&self.preset), &[], &self.body, &self.secret);
        let scheme = case.scheme().clone();
        let value = match &scheme.timestamp {
            Some(TimestampRule { place: TimestampPlace::Field(field), .. }) => {
                format!("{field}={},v1={}", self.timestamp.as_ref().unwrap(), self.signature)
            }
            Some(_) | None => self.signature.clone(),
        };
        case.headers.insert(&scheme.header, HeaderValue::try_from(value).unwrap());
        if let Some(id) = &self.id {
            case.add("webhook-id", id.as_bytes());
        }
        let Some(time) = &self.timestamp else { return case };
        let value = HeaderValue::from_str(time).unwrap();
        match &scheme.timestamp {
            Some(rule) => {
                if let TimestampPlace::Header(header) = &rule.place {
                    case.headers.insert(header, value);
                }
                let count: i64 = time.parse().unwrap();
                let in_millis = rule.unit == TimestampUnit::Milliseconds;
                case.now = if in_millis { Timestamp::from_millis(count) } else { at(count) };
            }
            // A time that is signed, and not looked at.
            None => {
                let signed = scheme.signed.iter().find_map(|part| match part {
                    SignedPart::Header(header) => Some(header.clone()),
                    _ => None,
                });
                case.headers.insert(signed.unwrap(), value);
            }
        }
        case
    }

    fn verify(&self, case: &Case) -> Result<(), Refusal> {
        let request = Signed { uri: self.uri.as_deref().unwrap_or(URI), ..case.request() };
        verify(&case.verification, request, &case.secrets, case.now)
    }
}

/// Presets of whose providers no vector is published. Each signs in a way that another preset's vector shows.
const UNPUBLISHED: [&str; 5] = ["linear", "discord", "meta", "zoom", "x"];

// ADM-4
#[test]
fn published_signatures_verify_and_no_other_secret_or_body_does() {
    let published: Vec<Published> = serde_json::from_str(include_str!("../published.json")).unwrap();
    for name in PRESET_NAMES {
        let is_published = published.iter().any(|vector| vector.preset == name);
        assert_ne!(is_published, UNPUBLISHED.contains(&name), "{name} has no vector");
    }
    for vector in &published {
        let case = vector.case();
        assert_eq!(vector.verify(&case), Ok(()), "{}: {:?}", vector.preset, vector.body);
        let mut longer = case.clone();
        longer.body.push(b'\n');
        assert_eq!(vector.verify(&longer), Err(Refusal::SignatureWrong), "{}", vector.preset);
        let mut other = case.clone();
        other.secrets = vec![Secret::new(Signer::new(case.scheme().algorithm).1.as_bytes())];
        assert_eq!(vector.verify(&other), Err(Refusal::SignatureWrong), "{}", vector.preset);
    }
}
