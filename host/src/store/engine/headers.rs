//! Headers as one blob.

use bytes::Bytes;

use crate::model::event::Header;

/// The layout of the blob, its first byte.
const VERSION: u8 = 1;

/// Version, then for each header: length of the name, length of the value (both u32, little-endian), name, value.
pub(super) fn encode(headers: &[Header]) -> Vec<u8> {
    let length = headers.iter().map(|header| 8 + header.name.len() + header.value.len()).sum::<usize>();
    let mut blob = Vec::with_capacity(1 + length);
    blob.push(VERSION);
    for header in headers {
        for length in [header.name.len(), header.value.len()] {
            let length = u32::try_from(length).expect("requests and outputs are bounded far below 4 GiB");
            blob.extend_from_slice(&length.to_le_bytes());
        }
        blob.extend_from_slice(header.name.as_bytes());
        blob.extend_from_slice(&header.value);
    }
    blob
}

pub(super) fn decode(blob: &Bytes) -> Option<Vec<Header>> {
    let (version, mut rest) = blob.split_first()?;
    if *version != VERSION {
        return None;
    }
    let mut headers = Vec::new();
    while !rest.is_empty() {
        let (name_length, after) = rest.split_first_chunk::<4>()?;
        let (value_length, after) = after.split_first_chunk::<4>()?;
        let (name, after) = after.split_at_checked(usize::try_from(u32::from_le_bytes(*name_length)).ok()?)?;
        let (value, after) = after.split_at_checked(usize::try_from(u32::from_le_bytes(*value_length)).ok()?)?;
        headers.push(Header { name: String::from_utf8(name.to_vec()).ok()?, value: blob.slice_ref(value) });
        rest = after;
    }
    Some(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(name: &str, value: &'static [u8]) -> Header {
        Header { name: name.to_owned(), value: Bytes::from_static(value) }
    }

    #[test]
    fn headers_read_back_byte_for_byte() {
        for headers in [
            vec![],
            vec![header("x-empty", b"")],
            vec![header("x-github-event", b"push"), header("x-odd", b"\x00\xff\r\n"), header("x-odd", b"twice")],
        ] {
            assert_eq!(decode(&encode(&headers).into()), Some(headers));
        }
    }

    #[test]
    fn damaged_headers_are_noticed() {
        let whole = encode(&[header("x-github-event", b"push")]);
        for length in 2..whole.len() {
            assert_eq!(decode(&Bytes::copy_from_slice(&whole[..length])), None, "{length}");
        }
        assert_eq!(decode(&Bytes::new()), None);
        assert_eq!(decode(&Bytes::from_static(&[9])), None);
    }
}
