//! Bounds of the queue. Every bound that a client can reach gives an error that names it.

/// Bounds on what clients store, and on what the workers do.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Size of an uploaded file, in bytes.
    pub file_bytes_max: u64,
    /// Lines of an uploaded file.
    pub file_lines_max: u64,
    /// Size of one line with its request, in bytes. Envoy holds a request's body until its decision.
    pub line_bytes_max: usize,
    /// Size of all files, and of the lines and results of all batches, in bytes.
    pub storage_bytes_max: u64,
    /// Number of files of all owners.
    pub files_max: u64,
    /// Number of batches that are not finished.
    pub batches_max: u64,
    /// Lines without a result of all batches.
    pub open_lines_max: u64,
    /// Size of one response, in bytes.
    pub response_bytes_max: usize,
    /// Failures of one line that are its own, after which its error is final.
    pub failures_max: u32,
    /// Failures of one line while the gateway served no other request either, after which its error is final.
    pub outages_max: u32,
    /// Time that finished batches and their results stay, in seconds.
    pub retention_s: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            file_bytes_max: 200 << 20,
            file_lines_max: 50_000,
            line_bytes_max: 3 << 20,
            storage_bytes_max: 20 << 30,
            files_max: 100_000,
            batches_max: 1_000,
            open_lines_max: 5_000_000,
            response_bytes_max: 16 << 20,
            failures_max: 10,
            outages_max: 1_000,
            retention_s: 30 * 24 * 3_600,
        }
    }
}

/// Use of a bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// By all owners.
    pub all: u64,
    /// By one owner.
    pub owner: u64,
}

impl Usage {
    /// Whether the owner may take `more` of a bound. Where other owners exist, an owner may have as much as is left free: half
    /// of the bound while the others have nothing, a third beside one that does the same, and so on. So there is always
    /// something left for the next owner.
    #[must_use]
    pub fn has_room(self, more: u64, bound: u64, is_shared: bool) -> bool {
        let free = bound.saturating_sub(self.all);
        let fits_share = !is_shared || self.owner.saturating_add(more) <= free;
        more <= free && free > 0 && fits_share
    }
}

/// Length of a `custom_id`, in characters.
pub const CUSTOM_ID_CHARACTERS_MAX: usize = 512;
/// Length of a model's name, in bytes.
pub const MODEL_BYTES_MAX: usize = 256;
/// Length of a file's name, in characters.
pub const FILE_NAME_CHARACTERS_MAX: usize = 255;
/// Mistakes of an input file that a batch lists.
pub const ERRORS_MAX: usize = 50;
/// Owner of the files and batches of a key without a name, and of clients without a key.
pub const OWNER_WITHOUT_KEY: &str = "default";
