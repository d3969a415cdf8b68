//! Pack files: what is read back, and what is refused.

use expect_test::{Expect, expect};

use super::*;

const MANIFEST: &str = "name = \"acme\"\nversion = \"1.0.0\"\n[[routes]]\npath = \"acme\"\nverify = \"plain\"\n";

fn refused(bytes: &[u8], expected: Expect) {
    expected.assert_eq(&PackFile::parse(bytes).unwrap_err().to_string());
}

fn archive(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, content) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        archive.append_data(&mut header, name, *content).unwrap();
    }
    zstd::bulk::compress(&archive.into_inner().unwrap(), 3).unwrap()
}

#[test]
fn a_file_ends_where_its_content_ends() {
    let bytes = PackFile::encode("name = \"a\"\nversion = \"1\"\n", b"component").unwrap();
    for behind in [&[0; 100][..], b"x", &bytes] {
        let refused = PackFile::parse(&[&bytes, behind].concat()).unwrap_err().to_string();
        assert!(refused.contains("it does not end where its content ends"), "{refused}");
    }
}

#[test]
fn a_pack_is_read_back_and_has_the_same_bytes_every_time() {
    let bytes = PackFile::encode(MANIFEST, b"component").unwrap();
    assert_eq!(PackFile::encode(MANIFEST, b"component").unwrap(), bytes);
    let pack = PackFile::parse(&bytes).unwrap();
    assert_eq!((pack.manifest_text.as_str(), &pack.component[..]), (MANIFEST, &b"component"[..]));
    assert_eq!(pack.manifest.name.as_str(), "acme");
}

#[test]
fn other_files_are_named_for_what_they_are() {
    refused(
        b"",
        expect!["this is no pack file: it is empty. `forebay pack build FOLDER` makes a pack file of a pack's folder"],
    );
    refused(
        b"PK\x03\x04rest",
        expect![
            "this is no pack file: it is a zip file. `forebay pack build FOLDER` makes a pack file of a pack's folder"
        ],
    );
    refused(
        &[0x1f, 0x8b, 8, 0],
        expect![
            "this is no pack file: it is a gzip file. `forebay pack build FOLDER` makes a pack file of a pack's folder"
        ],
    );
    refused(
        b"\0asm\x0d\0\x01\0",
        expect![
            "this is no pack file: it is WebAssembly without a manifest. `forebay pack build FOLDER` makes a pack file of a pack's folder"
        ],
    );
    refused(
        b"name = \"github\"",
        expect!["this is no pack file: it is text. `forebay pack build FOLDER` makes a pack file of a pack's folder"],
    );
    refused(
        &[0xff; 16],
        expect![
            "this is no pack file: it is of an unknown kind. `forebay pack build FOLDER` makes a pack file of a pack's folder"
        ],
    );
}

#[test]
fn a_damaged_pack_is_refused() {
    let bytes = PackFile::encode(MANIFEST, &[7; 4096]).unwrap();
    for length in [4, bytes.len() / 2, bytes.len() - 1] {
        assert!(PackFile::parse(&bytes[..length]).is_err(), "{length}");
    }
    let parts = [("pack.toml", MANIFEST.as_bytes()), ("component.wasm", b"c"), ("digests", b"other")];
    refused(&archive(&parts), expect!["the pack file's digests do not match its content: it was altered"]);
    refused(
        &archive(&parts[..1]),
        expect!["the pack file has no `component.wasm`: build it with `forebay pack build`"],
    );
    refused(
        &archive(&[parts[0], parts[0]]),
        expect!["the pack file contains `pack.toml` twice, or as something else than a file"],
    );
    refused(
        &archive(&[("../pack.toml".trim_start_matches("../"), b"x"), ("extra", b"y")]),
        expect!["the pack file contains `extra`, which no pack has"],
    );
}

#[test]
fn a_small_file_that_unpacks_to_a_large_one_is_refused() {
    let zeros = vec![0; 100 * 1024 * 1024];
    let bomb = archive(&[("component.wasm", &zeros)]);
    assert!(bomb.len() < 100 * 1024, "{}", bomb.len());
    refused(&bomb, expect!["the pack file's `component.wasm` has 104857600 bytes: at most 67108864 are taken"]);
    refused(
        &archive(&[("pack.toml", &zeros[..1024 * 1024])]),
        expect!["the pack file's `pack.toml` has 1048576 bytes: at most 262144 are taken"],
    );
    refused(
        &archive(&[(&"x".repeat(4_000), b"long name")]),
        expect!["the pack file contains `././@LongLink`, which no pack has"],
    );
}

/// What `forebay pack check` says of whatever somebody may hold for a pack.
// GST-6
#[test]
fn each_wrong_file_is_named_with_its_remedy() {
    let check = |bytes: &[u8]| crate::guest::build::check_pack(bytes).unwrap_err().to_string();
    let with = |component: &str| PackFile::encode(MANIFEST, &wat::parse_str(component).unwrap()).unwrap();
    let importing = |name: &str| format!(r#"(component (import "{name}" (instance (export "f" (func)))))"#);
    let whole = with("(component)");
    for (file, says, remedy) in [
        (with("(component)"), "does not export `forebay:connector/flow@0.1.0`", "forebay_sdk::export!"),
        (
            with(&importing("acme:tools/http@1.0.0")),
            "imports `acme:tools/http@1.0.0`",
            "it offers `forebay:connector/log@0.1.0`",
        ),
        (
            with(&importing("forebay:connector/log@0.3.0")),
            "wanted is version 0.3.0, offered is 0.1.0",
            "Build it with an SDK",
        ),
        (with("(module)"), "a core WebAssembly module, not a component", "`forebay pack build`"),
        (with(&importing("wasi:http/types@0.2.0")), "guests have no WASI", "Build for wasm32-unknown-unknown"),
        (whole[..whole.len() / 2].to_vec(), "the pack file is damaged", "Copy it again"),
        (b"PK\x03\x04and so on".to_vec(), "it is a zip file", "`forebay pack build FOLDER`"),
    ] {
        let text = check(&file);
        assert!(text.contains(says) && text.contains(remedy), "{text}");
    }
}

// GST-6
#[test]
fn a_file_of_200_megabytes_is_refused_unread() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("large.fpk");
    // Sparse: it has the size, and takes no room.
    std::fs::File::create(&file).unwrap().set_len(200 * 1024 * 1024).unwrap();
    let error = crate::guest::check_pack_file(&file).unwrap_err();
    expect!["this is no pack file: it has 209715200 bytes, and a pack has at most 67371008. Data belongs into the host's store or behind a reader, not into the component"].assert_eq(&error.to_string());
}
