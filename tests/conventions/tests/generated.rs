//! Generated code: what is checked in is what the `.proto` files generate.

#![expect(
    clippy::expect_used,
    reason = "a test: code that cannot be generated fails it"
)]

use std::fs;
use std::path::Path;

use isotherm_conventions::root;

/// The `.proto` files, and whether their services are generated besides their messages.
const PROTOS: [(&str, bool); 2] = [
    ("wasm-filter/decision-proto/src/decisions.proto", false),
    ("ext-proc/src/scaling/keda/externalscaler.proto", true),
];

/// The environment variable with which the test writes the files.
const UPDATE: &str = "UPDATE_GENERATED";

#[test]
fn generated_code_matches_its_proto_file() {
    for (name, has_service) in PROTOS {
        let proto = root().join(name);
        let generated = proto.with_file_name("generated.rs");
        let expected = generate(&proto, has_service);
        if std::env::var_os(UPDATE).is_some() {
            fs::write(&generated, expected).expect("writable");
        } else {
            assert!(
                fs::read_to_string(&generated).is_ok_and(|text| text == expected),
                "{} is not what {name} generates; run this test with {UPDATE}=1 to write it again",
                generated.display(),
            );
        }
    }
}

fn generate(proto: &Path, has_service: bool) -> String {
    let folder = proto.parent().expect("a file lies in a folder");
    let mut descriptors = protox::compile([proto], [folder]).expect("the file compiles");
    for file in &mut descriptors.file {
        file.source_code_info = None; // comments stand in the .proto file only
    }
    let out = tempfile::tempdir().expect("a temporary folder");
    tonic_prost_build::configure()
        .build_client(has_service)
        .build_server(has_service)
        .build_transport(false)
        .out_dir(out.path())
        .compile_fds(descriptors)
        .expect("code is generated");
    let mut files = fs::read_dir(out.path()).expect("the folder is there");
    let file = files.next().expect("a file").expect("readable");
    fs::read_to_string(file.path()).expect("readable")
}
