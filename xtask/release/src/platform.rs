//! The architectures of a release, and the name that each world has for them.

use oci_spec::image::Arch;

/// An architecture of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Platform {
    /// x86-64.
    X86,
    /// arm64.
    Arm,
}

/// Every architecture, in the order of an image's index.
pub(crate) const PLATFORMS: [Platform; 2] = [Platform::X86, Platform::Arm];

impl Platform {
    /// Name of the kernel and of Python: `uname -m`.
    pub(crate) fn machine(self) -> &'static str {
        match self {
            Self::X86 => "x86_64",
            Self::Arm => "aarch64",
        }
    }

    /// Name in packages of Debian.
    pub(crate) fn debian(self) -> &'static str {
        match self {
            Self::X86 => "amd64",
            Self::Arm => "arm64",
        }
    }

    /// Name in images.
    pub(crate) fn image(self) -> Arch {
        match self {
            Self::X86 => Arch::Amd64,
            Self::Arm => Arch::ARM64,
        }
    }
}
