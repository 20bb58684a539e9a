//! Generated code: what is checked in is what the `.proto` files generate.

use std::fs;
use std::path::Path;

use isotherm_conventions::root;

/// A `.proto` file; the generated file lies next to it.
struct Proto {
    path: &'static str,
    /// Whether the service's client is generated, too. The filter calls the service without one.
    has_client: bool,
    /// The feature that the client and the server need, if any.
    feature: Option<&'static str>,
}

const PROTOS: [Proto; 2] = [
    Proto {
        path: "wasm-filter/decision-proto/src/decisions.proto",
        has_client: false,
        feature: Some("server"),
    },
    Proto {
        path: "ext-proc/src/peering/wire/peering.proto",
        has_client: true,
        feature: None,
    },
];

/// The environment variable with which the test writes the files.
const UPDATE: &str = "UPDATE_GENERATED";

#[test]
fn generated_code_matches_its_proto_file() {
    for proto in PROTOS {
        let path = root().join(proto.path);
        let generated = path.with_file_name("generated.rs");
        let expected = generate(&path, &proto);
        if std::env::var_os(UPDATE).is_some() {
            fs::write(&generated, expected).expect("writable");
        } else {
            assert!(
                fs::read_to_string(&generated).is_ok_and(|text| text == expected),
                "{} is not what {} generates; run this test with {UPDATE}=1 to write it again",
                generated.display(),
                proto.path
            );
        }
    }
}

/// The messages of a `.proto` file, and the client and server of its service.
fn generate(path: &Path, proto: &Proto) -> String {
    let folder = path.parent().expect("a file lies in a folder");
    let descriptors = protox::compile([path], [folder]).expect("the file compiles");
    let out = tempfile::tempdir().expect("a temporary folder");
    let mut builder = tonic_prost_build::configure()
        .build_client(proto.has_client)
        .build_transport(false)
        .out_dir(out.path());
    if let Some(feature) = proto.feature {
        let condition = format!("#[cfg(feature = \"{feature}\")]");
        builder = builder
            .client_mod_attribute(".", &condition)
            .server_mod_attribute(".", &condition);
    }
    builder.compile_fds(descriptors).expect("code is generated");
    let mut files = fs::read_dir(out.path()).expect("the folder is there");
    let file = files.next().expect("a file for the package").expect("readable");
    fs::read_to_string(file.path()).expect("readable")
}
