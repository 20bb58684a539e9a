//! The plan of a worker: owners take turns, and the batches of an owner go in the order of their deadlines.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::sync::watch;

use super::WorkerConfig;
use super::in_flight::{InFlight, Lane};
use super::rates::Rates;
use super::windows::Windows;
use crate::pace::{BatchDemand, Feedback, Moment, Priority, SteadyMs, UnixMs, promoted_lines};
use crate::store::{BatchRow, Claim, Store, StoreResult};

/// Most lines of one claim.
const CLAIM_LINES_MAX: usize = 64;
/// Pause before another claim of a batch that had no free line, in milliseconds.
const EMPTY_PAUSE_MS: i64 = 200;
/// Pause before another claim after the database failed, in milliseconds.
const FAILURE_PAUSE_MS: i64 = 1_000;
/// Requests that the gate holds for a model before a worker sends no more non-interactive ones. A few keep the gate from
/// running dry between two looks at it.
const HELD_MAX: u64 = 16;
/// Part of a worker's lines at the gateway that one owner's promoted lines may take: a quarter.
const PROMOTED_PART: usize = 4;
/// Most batches that a worker works on at once.
const BATCHES_MAX: u32 = 1_000;

/// The next claim.
#[derive(Clone, Debug)]
pub(super) struct WantedLines {
    pub(super) batch: String,
    pub(super) priority: Priority,
    pub(super) count: usize,
}

/// A batch whose lines are being sent.
#[derive(Debug)]
struct ActiveBatch {
    row: BatchRow,
    /// Lines that this worker sends as interactive requests, at once.
    promoted: u64,
    /// Time before which the batch has no free line.
    empty_until: SteadyMs,
}

/// Batches with lines that may be free, by owner and then by deadline.
struct WaitingBatches<'a> {
    by_owner: BTreeMap<&'a str, Vec<&'a ActiveBatch>>,
    owners_by_model: BTreeMap<&'a str, BTreeSet<&'a str>>,
}

impl<'a> WaitingBatches<'a> {
    fn new(batches: &'a [ActiveBatch], now: Moment) -> Self {
        let mut this = Self {
            by_owner: BTreeMap::new(),
            owners_by_model: BTreeMap::new(),
        };
        for batch in batches {
            let has_ended = now.unix >= batch.row.expires_at || batch.row.remaining() == 0;
            if has_ended || now.steady < batch.empty_until {
                continue;
            }
            let (owner, model) = (batch.row.owner.as_str(), batch.row.model.as_str());
            this.by_owner.entry(owner).or_default().push(batch);
            this.owners_by_model.entry(model).or_default().insert(owner);
        }
        this
    }

    /// Number of owners with lines for a model.
    fn owners(&self, model: &str) -> usize {
        self.owners_by_model.get(model).map_or(0, BTreeSet::len)
    }
}

/// The batches, windows and rates of a worker.
#[derive(Debug)]
pub(super) struct Plan {
    batches: Vec<ActiveBatch>,
    /// Owner of the last claim.
    last_owner: String,
    windows: Windows,
    rates: Rates,
    holds: watch::Receiver<BTreeMap<String, u64>>,
    paused_until: SteadyMs,
    concurrency_max: usize,
    only: Option<String>,
}

impl Plan {
    pub(super) fn new(
        config: &WorkerConfig,
        holds: watch::Receiver<BTreeMap<String, u64>>,
    ) -> Self {
        Self {
            batches: Vec::new(),
            last_owner: String::new(),
            windows: Windows::new(config.concurrency_max),
            rates: Rates::default(),
            holds,
            paused_until: SteadyMs::MIN,
            concurrency_max: config.concurrency_max,
            only: config.only.clone(),
        }
    }

    /// Reads the active batches, and decides which of their lines are promoted.
    pub(super) async fn refresh(
        &mut self,
        store: &Store,
        worker: &str,
        in_flight: &InFlight,
    ) -> StoreResult<()> {
        let rows = store.active_batches(BATCHES_MAX).await?;
        let rows = rows
            .into_iter()
            .filter(|row| self.only.as_ref().is_none_or(|only| *only == row.id));
        let mut empty: BTreeMap<String, SteadyMs> = self
            .batches
            .drain(..)
            .map(|batch| (batch.row.id, batch.empty_until))
            .collect();
        self.batches = rows
            .map(|row| ActiveBatch {
                empty_until: empty.remove(&row.id).unwrap_or(SteadyMs::MIN),
                promoted: 0,
                row,
            })
            .collect();
        let now = store.moment();
        self.forget_models();
        let batches = &self.batches;
        self.rates.observe(now.steady, |model| {
            let has_work =
                |batch: &ActiveBatch| batch.row.model == model && batch.row.remaining() > 0;
            batches.iter().any(has_work)
        });
        self.rates.report(store, worker, now.steady).await?;
        self.promote(now.unix, in_flight);
        Ok(())
    }

    /// Forgets models without a batch and without a line in flight.
    fn forget_models(&mut self) {
        let batches = &self.batches;
        let models = batches.iter().map(|batch| batch.row.model.as_str());
        self.rates.keep(&models.collect());
        self.windows.forget(|lane| {
            let is_of = |batch: &ActiveBatch| Lane::of(&batch.row) == *lane;
            batches.iter().any(is_of)
        });
    }

    fn promote(&mut self, now: UnixMs, in_flight: &InFlight) {
        let owner_max = (self.concurrency_max / PROMOTED_PART).max(1) as u64;
        let mut by_owner: BTreeMap<String, u64> = BTreeMap::new();
        for (model, rate) in self.rates.iter() {
            let of_model: Vec<&mut ActiveBatch> = self
                .batches
                .iter_mut()
                .filter(|batch| batch.row.model == *model)
                .collect();
            let demands: Vec<BatchDemand> = of_model
                .iter()
                .map(|batch| BatchDemand {
                    created_at: batch.row.created_at,
                    expires_at: batch.row.expires_at,
                    remaining: batch.row.remaining(),
                })
                .collect();
            let promoted = promoted_lines(now, &demands, rate.spare_per_s);
            for (batch, lines) in of_model.into_iter().zip(promoted) {
                // Each worker promotes its share, but all workers promote a whole batch.
                let is_whole = lines >= batch.row.remaining();
                let lines = match is_whole {
                    true => lines,
                    false => lines.div_ceil(rate.workers.max(1)),
                };
                let of_owner = by_owner.entry(batch.row.owner.clone()).or_default();
                batch.promoted = lines.min(owner_max.saturating_sub(*of_owner));
                *of_owner += batch.promoted;
                if batch.promoted > 0
                    && in_flight.of_batch(&batch.row.id, Priority::Interactive) == 0
                {
                    tracing::debug!(batch = batch.row.id, lines, "lines are promoted");
                }
            }
        }
    }

    /// The next claim, if any line may be sent: of the owner after the last one whose lines may go.
    pub(super) fn next_claim(&mut self, now: Moment, in_flight: &InFlight) -> Option<WantedLines> {
        if now.steady < self.paused_until || in_flight.len() >= self.concurrency_max {
            return None;
        }
        let waiting = WaitingBatches::new(&self.batches, now);
        let last = self.last_owner.as_str();
        let (earlier, later): (Vec<&str>, Vec<&str>) = waiting
            .by_owner
            .keys()
            .copied()
            .partition(|owner| *owner <= last);
        let next = later.into_iter().chain(earlier).find_map(|owner| {
            let places = self.places(owner, &waiting, in_flight);
            let batches = waiting.by_owner.get(owner)?.iter();
            let mut wanted = batches.filter_map(|batch| {
                let owners = waiting.owners(&batch.row.model);
                self.wanted_lines(now, batch, (places, owners), in_flight)
            });
            Some((owner.to_owned(), wanted.next()?))
        });
        let (owner, wanted) = next?;
        self.last_owner = owner;
        Some(wanted)
    }

    /// Places for lines of an owner. Each other owner that waits and has no line in flight keeps a place.
    fn places(&self, owner: &str, waiting: &WaitingBatches<'_>, in_flight: &InFlight) -> usize {
        let free = self.concurrency_max.saturating_sub(in_flight.len());
        if !in_flight.has_owner(owner) {
            return free;
        }
        let has_none = |other: &&&str| !in_flight.has_owner(other);
        free.saturating_sub(waiting.by_owner.keys().filter(has_none).count())
    }

    /// Lines of a batch that may be sent now, within the places of its owner, beside other owners with lines for the model.
    fn wanted_lines(
        &self,
        now: Moment,
        batch: &ActiveBatch,
        (places, owners): (usize, usize),
        in_flight: &InFlight,
    ) -> Option<WantedLines> {
        let lane = Lane::of(&batch.row);
        let claims = [Priority::Interactive, Priority::NonInteractive].map(|priority| {
            let lane = (&lane, priority);
            let window = self.windows.free(now.steady, lane, owners, in_flight);
            let quota = self.quota(batch, priority, in_flight);
            let quota = usize::try_from(quota).unwrap_or(usize::MAX);
            (priority, places.min(window).min(CLAIM_LINES_MAX).min(quota))
        });
        let (priority, count) = claims.into_iter().find(|(_, count)| *count > 0)?;
        Some(WantedLines {
            batch: batch.row.id.clone(),
            priority,
            count,
        })
    }

    /// Lines of a batch that may be sent with a priority.
    fn quota(&self, batch: &ActiveBatch, priority: Priority, in_flight: &InFlight) -> u64 {
        let open = batch.row.remaining();
        match priority {
            Priority::Interactive => batch
                .promoted
                .saturating_sub(in_flight.of_batch(&batch.row.id, Priority::Interactive) as u64),
            Priority::NonInteractive => {
                let holds = self.holds.borrow();
                let is_full = holds
                    .get(&batch.row.model)
                    .is_some_and(|held| *held >= HELD_MAX);
                match is_full {
                    true => 0,
                    false => open.saturating_sub(batch.promoted),
                }
            }
        }
    }

    /// The claim of these lines.
    pub(super) fn claim<'a>(
        &'a self,
        wanted: &WantedLines,
        worker: &'a str,
        lease: Duration,
    ) -> Option<Claim<'a>> {
        let batch = self.batch(&wanted.batch)?;
        Some(Claim {
            worker,
            batch: &batch.id,
            input_file: &batch.input_file_id,
            priority: wanted.priority,
            lease_ms: i64::try_from(lease.as_millis()).unwrap_or(i64::MAX),
            count: wanted.count,
        })
    }

    /// Learns how many lines a claim brought.
    pub(super) fn claimed(&mut self, now: SteadyMs, wanted: &WantedLines, count: usize) {
        if count >= wanted.count {
            return;
        }
        let batch = self
            .batches
            .iter_mut()
            .find(|batch| batch.row.id == wanted.batch);
        if let Some(batch) = batch {
            batch.empty_until = now.saturating_add(EMPTY_PAUSE_MS);
        }
    }

    pub(super) fn pause_claims(&mut self, now: SteadyMs) {
        self.paused_until = now.saturating_add(FAILURE_PAUSE_MS);
    }

    pub(super) fn batch(&self, id: &str) -> Option<&BatchRow> {
        let batch = self.batches.iter().find(|batch| batch.row.id == id);
        batch.map(|batch| &batch.row)
    }

    /// Number of lines that the gateway takes at once with a priority.
    pub(super) fn window(&self, priority: Priority) -> usize {
        self.windows.limit(priority)
    }

    /// Counts a line that is being sent.
    pub(super) fn sent(&mut self, lane: &Lane, priority: Priority) {
        self.windows.sent(lane, priority);
    }

    /// Ends a line: its result is stored, or it waits for another attempt.
    pub(super) fn ended(&mut self, lane: &Lane, priority: Priority) {
        self.windows.ended(lane, priority);
    }

    /// Learns from the answer to a line. Returns whether the gateway has served any line for the model lately.
    pub(super) fn learn(
        &mut self,
        (lane, priority): (&Lane, Priority),
        (now, sent_at): (SteadyMs, SteadyMs),
        feedback: Option<Feedback>,
    ) -> bool {
        if feedback == Some(Feedback::Served) && priority == Priority::NonInteractive {
            self.rates.ended(&lane.model);
        }
        self.windows
            .learn((lane, priority), (now, sent_at), feedback)
    }
}
