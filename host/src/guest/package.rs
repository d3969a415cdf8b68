//! The pack file, `.fpk`: a zstd tar of the manifest, the component and their digests, the same bytes for the same
//! content.
//!
//! Invariant: reading one takes a bounded amount of memory, whatever it claims to hold.

use std::io::{self, Read};

use bytes::Bytes;
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

use super::check::COMPONENT_BYTES_MAX;
use super::manifest::{MANIFEST_BYTES_MAX, parse_manifest};
use super::{LoadError, PackFile};

const MANIFEST_NAME: &str = "pack.toml";
const COMPONENT_NAME: &str = "component.wasm";
const DIGESTS_NAME: &str = "digests";

/// The largest pack file.
pub const PACK_BYTES_MAX: usize = COMPONENT_BYTES_MAX + MANIFEST_BYTES_MAX;
/// Two lines of a digest and a name.
const DIGESTS_BYTES_MAX: usize = 1_024;
/// Everything unpacked, with the tar's own blocks.
const UNPACKED_BYTES_MAX: usize = COMPONENT_BYTES_MAX + MANIFEST_BYTES_MAX + 64 * 1024;
/// Good compression at a speed that nobody waits for.
const COMPRESSION_LEVEL: i32 = 9;

const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

impl PackFile {
    /// Reads a `.fpk` file's bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, LoadError> {
        recognize(bytes)?;
        // Else two files of one content would be two generations, and one that was cut and filled up would pass for
        // whole.
        if zstd::zstd_safe::find_frame_compressed_size(bytes) != Ok(bytes.len()) {
            let ends = "it does not end where its content ends";
            return Err(damaged(io::Error::new(io::ErrorKind::InvalidData, ends)));
        }
        let mut archive = unpacker(bytes)?;
        let mut manifest = None;
        let mut component = None;
        let mut digests = None;
        // Raw: extension records would be read whole, whatever their size.
        for entry in archive.entries().map_err(damaged)?.raw(true) {
            let mut entry = entry.map_err(damaged)?;
            let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            let (place, bytes_max) = match name.as_str() {
                MANIFEST_NAME => (&mut manifest, MANIFEST_BYTES_MAX),
                COMPONENT_NAME => (&mut component, COMPONENT_BYTES_MAX),
                DIGESTS_NAME => (&mut digests, DIGESTS_BYTES_MAX),
                _ => return Err(LoadError(format!("the pack file contains `{}`, which no pack has", shown(&name)))),
            };
            if place.is_some() || !entry.header().entry_type().is_file() {
                return Err(LoadError(format!(
                    "the pack file contains `{name}` twice, or as something else than a file"
                )));
            }
            let size = entry.header().size().map_err(damaged)?;
            if size > bytes_max as u64 {
                return Err(LoadError(format!(
                    "the pack file's `{name}` has {size} bytes: at most {bytes_max} are taken"
                )));
            }
            let mut content = Vec::new();
            entry.read_to_end(&mut content).map_err(damaged)?;
            *place = Some(content);
        }
        let missing =
            |name: &str| LoadError(format!("the pack file has no `{name}`: build it with `forebay pack build`"));
        let manifest = manifest.ok_or_else(|| missing(MANIFEST_NAME))?;
        let component = component.ok_or_else(|| missing(COMPONENT_NAME))?;
        if digests.ok_or_else(|| missing(DIGESTS_NAME))? != digest_list(&manifest, &component).into_bytes() {
            return Err(LoadError("the pack file's digests do not match its content: it was altered".to_owned()));
        }
        let manifest_text = String::from_utf8(manifest)
            .map_err(|_| LoadError("the pack file's `pack.toml` is not UTF-8".to_owned()))?;
        Ok(Self {
            manifest: parse_manifest(&manifest_text)?,
            manifest_text,
            component: Bytes::from(component),
            digest: Sha256::digest(bytes).into(),
        })
    }

    /// The bytes of the `.fpk` file with this manifest and this component.
    pub fn encode(manifest_text: &str, component: &[u8]) -> Result<Vec<u8>, LoadError> {
        let manifest = manifest_text.as_bytes();
        let digests = digest_list(manifest, component);
        let mut archive = tar::Builder::new(Vec::new());
        let packed = append(&mut archive, MANIFEST_NAME, manifest)
            .and_then(|()| append(&mut archive, COMPONENT_NAME, component))
            .and_then(|()| append(&mut archive, DIGESTS_NAME, digests.as_bytes()))
            .and_then(|()| archive.into_inner())
            .and_then(|tar| zstd::bulk::compress(&tar, COMPRESSION_LEVEL));
        packed.map_err(|error| LoadError(format!("the pack file cannot be written: {error}")))
    }
}

fn recognize(bytes: &[u8]) -> Result<(), LoadError> {
    let found = match bytes {
        [] => "is empty",
        _ if bytes.len() > PACK_BYTES_MAX => return Err(too_large(bytes.len() as u64)),
        _ if bytes.starts_with(&ZSTD_MAGIC) => return Ok(()),
        _ if bytes.starts_with(b"PK\x03\x04") => "is a zip file",
        _ if bytes.starts_with(&[0x1f, 0x8b]) => "is a gzip file",
        _ if bytes.starts_with(b"\0asm") => "is WebAssembly without a manifest",
        _ if bytes.is_ascii() => "is text",
        _ => "is of an unknown kind",
    };
    Err(LoadError(format!(
        "this is no pack file: it {found}. `forebay pack build FOLDER` makes a pack file of a pack's folder"
    )))
}

/// What is said of a file of so many bytes, which need not have been read.
pub(super) fn too_large(bytes: u64) -> LoadError {
    LoadError(format!(
        "this is no pack file: it has {bytes} bytes, and a pack has at most {PACK_BYTES_MAX}. Data belongs into the host's \
         store or behind a reader, not into the component"
    ))
}

fn unpacker(bytes: &[u8]) -> Result<tar::Archive<impl Read>, LoadError> {
    let decoder = zstd::stream::read::Decoder::with_buffer(bytes).map_err(damaged)?;
    Ok(tar::Archive::new(decoder.take(UNPACKED_BYTES_MAX as u64)))
}

fn damaged(error: io::Error) -> LoadError {
    LoadError(format!("the pack file is damaged: {error}. Copy it again, or build it again with `forebay pack build`"))
}

fn shown(name: &str) -> String {
    name.chars().take(80).collect()
}

/// One line a file, in the form of `sha256sum`.
fn digest_list(manifest: &[u8], component: &[u8]) -> String {
    let line = |name: &str, content: &[u8]| format!("{}  {name}\n", HEXLOWER.encode(&Sha256::digest(content)));
    line(MANIFEST_NAME, manifest) + &line(COMPONENT_NAME, component)
}

/// Nothing of the machine or the moment goes into the file.
fn append(archive: &mut tar::Builder<Vec<u8>>, name: &str, content: &[u8]) -> io::Result<()> {
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(tar::EntryType::Regular);
    header.set_mode(0o644);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(content.len() as u64);
    archive.append_data(&mut header, name, content)
}
