//! The wheel and the Debian package: they install, their programs run, and they leave nothing behind.

use std::env;

use crate::bare_root;
use crate::files::find;

/// A configuration for `isotherm check`.
const CONFIGURATION: &str = include_str!("../../../../examples/quickstart/isotherm.yaml");

/// Routes requests between two simulated engines.
pub(crate) const ROUTE: &str = include_str!("route.py");

/// Commands that fail unless the layout below `prefix` is complete and its programs run.
fn use_below(prefix: &str) -> String {
    format!(
        "cat > /tmp/isotherm.yaml <<'END'\n{CONFIGURATION}END\n\
         {prefix}/bin/isotherm --version\n\
         {prefix}/bin/isotherm check /tmp/isotherm.yaml\n\
         {prefix}/libexec/isotherm/isotherm-engine --help > /tmp/help\n\
         {prefix}/libexec/isotherm/isotherm-demo --help > /tmp/help\n\
         test -s {prefix}/share/isotherm/isotherm_filter.wasm\n"
    )
}

#[test]
fn the_wheel_installs_from_the_folder_and_leaves_nothing() -> anyhow::Result<()> {
    let printed = bare_root::run(&format!(
        "python3 -m venv /venv\n\
         /venv/bin/pip install --quiet --no-index --find-links /release --find-links /wheels isotherm\n\
         {}\
         /venv/bin/python -c 'import envoy'\n\
         cat > /tmp/route.py <<'END'\n{ROUTE}END\n\
         cd /tmp\n\
         /venv/bin/python /tmp/route.py /venv\n\
         /venv/bin/isotherm try --requests 12 --no-open\n\
         grep --quiet 'isotherm try --requests 12' isotherm-try/report.html\n\
         /venv/bin/pip uninstall --quiet --yes isotherm\n\
         find /venv -iname '*isotherm*' | sed 's/^/left: /'\n",
        use_below("/venv")
    ))?;
    assert!(printed.contains(&version()), "{printed}");
    assert!(!printed.contains("left: "), "{printed}");
    Ok(())
}

#[test]
fn the_debian_package_installs_and_leaves_nothing() -> anyhow::Result<()> {
    let package = find("isotherm_", &format!("_{}.deb", debian_architecture()))?;
    let name = package.file_name().unwrap_or_default().to_string_lossy();
    let printed = bare_root::run(&format!(
        "dpkg --install /release/{name} > /tmp/dpkg\n\
         {}\
         test -s /usr/share/doc/isotherm/copyright\n\
         mkdir /etc/isotherm && mv /tmp/isotherm.yaml /etc/isotherm\n\
         $(sed -n s/^ExecStart=//p /usr/lib/systemd/system/isotherm.service) --print-envoy > /tmp/envoy.yaml\n\
         grep --quiet /usr/share/isotherm/isotherm_filter.wasm /tmp/envoy.yaml\n\
         rm -r /etc/isotherm\n\
         dpkg --purge isotherm > /tmp/dpkg\n\
         find /usr /etc /var/lib/dpkg/info -iname 'isotherm*' | sed 's/^/left: /'\n",
        use_below("/usr")
    ))?;
    assert!(printed.contains(&version()), "{printed}");
    assert!(!printed.contains("left: "), "{printed}");
    Ok(())
}

fn version() -> String {
    format!("isotherm {}", env!("CARGO_PKG_VERSION"))
}

fn debian_architecture() -> &'static str {
    match env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
