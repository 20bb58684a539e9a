//! Checks the input file of a batch, and adds its lines to the queue.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::limits::ERRORS_MAX;
use crate::line::{LineError, RequestLine, is_blank};
use crate::store::{BatchRow, NewRequest, Store, StoreResult};

/// Lines that are read at once.
const PAGE_LINES: u32 = 200;

/// A batch whose input file has no mistake.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ValidBatch {
    /// Model of every request.
    pub(super) model: String,
    /// Number of requests.
    pub(super) lines: u64,
}

/// Mistakes of an input file, in OpenAI's form.
#[derive(Debug, Serialize)]
struct MistakeList {
    object: &'static str,
    data: Vec<Mistake>,
}

#[derive(Debug, Serialize)]
struct Mistake {
    code: &'static str,
    message: String,
    param: Option<&'static str>,
    line: Option<i64>,
}

/// Lines of the file so far.
#[derive(Debug, Default)]
struct Checker {
    mistakes: Vec<Mistake>,
    model: Option<String>,
    /// Line of each custom id.
    custom_ids: BTreeMap<String, i64>,
}

/// Checks every line of the input file, and adds those without a mistake to the queue. Renews the lease of `steward` with
/// each page. The inner error is the list of mistakes as JSON.
pub(super) async fn validate(
    store: &Store,
    batch: &BatchRow,
    (steward, lease_ms): (&str, i64),
) -> StoreResult<Result<ValidBatch, String>> {
    let mut checker = Checker::default();
    let Some(file) = store.file(&batch.owner, &batch.input_file_id).await? else {
        checker.mistake("file_not_found", "the input file is gone", None, None);
        return Ok(Err(checker.list()));
    };
    let mut after = 0;
    loop {
        let page = store.file_lines(&file, after, PAGE_LINES).await?;
        let Some((last, _)) = page.last() else { break };
        after = *last;
        let requests: Vec<NewRequest> = page
            .iter()
            .filter_map(|(number, line)| checker.check(batch, *number, line))
            .collect();
        if checker.mistakes.len() >= ERRORS_MAX || checker.has_encoding_mistake() {
            break;
        }
        if checker.mistakes.is_empty() {
            store.add_requests(&batch.id, &requests).await?;
        }
        store.hold_batch(steward, &batch.id, lease_ms).await?;
    }
    if checker.custom_ids.is_empty() && checker.mistakes.is_empty() {
        checker.mistake("empty_file", "the input file has no request", None, None);
    }
    match checker.model.take() {
        Some(model) if checker.mistakes.is_empty() => Ok(Ok(ValidBatch {
            model,
            lines: checker.custom_ids.len() as u64,
        })),
        _ => Ok(Err(checker.list())),
    }
}

impl Checker {
    /// Checks a line; `None` for a blank line and for one with a mistake.
    fn check(&mut self, batch: &BatchRow, number: i64, line: &[u8]) -> Option<NewRequest> {
        if is_blank(line) || self.has_encoding_mistake() {
            return None;
        }
        let request = match RequestLine::parse(line) {
            Ok(request) => request,
            Err(error) => {
                self.line_mistake(number, &error);
                return None;
            }
        };
        if request.endpoint != batch.endpoint {
            let (url, endpoint) = (request.endpoint, batch.endpoint);
            let message = format!(
                "the line goes to {url}, and the batch to {endpoint}: make a batch for each"
            );
            self.mistake("mismatched_url", &message, Some("url"), Some(number));
            return None;
        }
        let model = self.model.get_or_insert_with(|| request.model.clone());
        if *model != request.model {
            let message = format!(
                "the line names the model `{}`, and the first line `{model}`: make a batch for each",
                request.model
            );
            self.mistake(
                "mismatched_model",
                &message,
                Some("body.model"),
                Some(number),
            );
            return None;
        }
        if let Some(first) = self.custom_ids.get(&request.custom_id) {
            let message = format!("line {first} has the same `custom_id`");
            self.mistake(
                "duplicate_custom_id",
                &message,
                Some("custom_id"),
                Some(number),
            );
            return None;
        }
        self.custom_ids.insert(request.custom_id.clone(), number);
        Some(NewRequest {
            number,
            custom_id: request.custom_id,
        })
    }

    /// Whether the file is in another encoding: then every line has the same mistake, and one is enough.
    fn has_encoding_mistake(&self) -> bool {
        let code = LineError::Encoding.code();
        self.mistakes.iter().any(|mistake| mistake.code == code)
    }

    fn line_mistake(&mut self, number: i64, error: &LineError) {
        self.mistake(
            error.code(),
            &error.to_string(),
            error.parameter(),
            Some(number),
        );
    }

    fn mistake(
        &mut self,
        code: &'static str,
        message: &str,
        param: Option<&'static str>,
        line: Option<i64>,
    ) {
        if self.mistakes.len() < ERRORS_MAX {
            self.mistakes.push(Mistake {
                code,
                message: message.to_owned(),
                param,
                line,
            });
        }
    }

    fn list(self) -> String {
        let list = MistakeList {
            object: "list",
            data: self.mistakes,
        };
        // Texts and numbers always become JSON.
        serde_json::to_string(&list).unwrap_or_default()
    }
}
