//! An ordered set of positions: in one line, or in one line for each tenant.
//!
//! With fairness between tenants, a *window* shows the tenants whose charge is at most the least one plus a quantum (DLPM, arXiv
//! 2501.14312): at most [`TENANTS_SHOWN_MAX`], the least charged first. A tenant's charge changes twice for each of its requests,
//! and each change only moves the tenant in the order of charges.
//!
//! Rejected: one line, with the requests of tenants outside the window skipped. Such a tenant may have most of a long queue, and
//! each search would walk over it.

use core::cmp::Ordering;
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeSet, BinaryHeap, HashMap, btree_set};

use foldhash::fast::FixedState;
use itertools::{Either, Itertools};
use smallvec::SmallVec;

use super::{LinePlace, QueueSeq};
use crate::queue::line::Span;
use crate::tenants::{Charge, TenantAccount, TenantSlot};

/// Limit of the tenants that a window shows: a search of the line looks each one up.
const TENANTS_SHOWN_MAX: usize = 32;

/// Positions in order.
#[derive(Debug)]
pub(super) enum LineSet {
    /// One line.
    Common(BTreeSet<LinePlace>),
    /// One line for each tenant.
    ByTenant(TenantLines),
}

/// Lines of tenants, and the order of their charges.
#[derive(Debug, Default)]
pub(super) struct TenantLines {
    lines: HashMap<TenantSlot, TenantLine, FixedState>,
    /// Least charged first; among equals the tenant that has waited for longest.
    by_charge: BTreeSet<(Charge, QueueSeq, TenantSlot)>,
}

#[derive(Debug)]
struct TenantLine {
    places: BTreeSet<LinePlace>,
    /// The first position: most searches need no other.
    first: LinePlace,
    charge: Charge,
    /// The request that began the line.
    since: QueueSeq,
}

/// The tenants whose requests are shown.
#[derive(Clone, Debug)]
pub(super) struct TenantWindow {
    tenants: SmallVec<[TenantSlot; TENANTS_SHOWN_MAX]>,
    /// The largest charge of a shown tenant.
    limit: Charge,
}

impl LineSet {
    pub(super) fn new(is_fair: bool) -> Self {
        if is_fair {
            Self::ByTenant(TenantLines::default())
        } else {
            Self::Common(BTreeSet::new())
        }
    }

    pub(super) fn insert(&mut self, place: LinePlace, tenant: TenantAccount) {
        match self {
            Self::Common(places) => {
                places.insert(place);
            }
            Self::ByTenant(lines) => lines.insert(place, tenant),
        }
    }

    /// Removes a position; returns whether it was here.
    pub(super) fn remove(&mut self, place: LinePlace, tenant: TenantSlot) -> bool {
        match self {
            Self::Common(places) => places.remove(&place),
            Self::ByTenant(lines) => lines.remove(place, tenant),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Common(places) => places.is_empty(),
            Self::ByTenant(lines) => lines.lines.is_empty(),
        }
    }

    /// All positions: in order, or tenant by tenant.
    pub(super) fn iter(&self) -> impl Iterator<Item = LinePlace> + '_ {
        match self {
            Self::Common(places) => Either::Left(places.iter().copied()),
            Self::ByTenant(lines) => {
                let in_order = lines.by_charge.iter();
                let in_order = in_order.filter_map(|(.., tenant)| lines.lines.get(tenant));
                Either::Right(in_order.flat_map(|line| line.places.iter().copied()))
            }
        }
    }

    pub(super) fn set_charge(&mut self, tenant: TenantAccount) {
        if let Self::ByTenant(lines) = self {
            lines.set_charge(tenant);
        }
    }

    /// Charges of the tenants with positions here, the least one first.
    pub(super) fn charges(&self) -> impl DoubleEndedIterator<Item = Charge> + '_ {
        let lines = self.tenant_lines().into_iter();
        lines.flat_map(|lines| lines.by_charge.iter().map(|(charge, ..)| *charge))
    }

    /// The least charged tenant with positions here, and its charge.
    pub(super) fn least_charged(&self) -> Option<(Charge, TenantSlot)> {
        let (charge, _, tenant) = self.tenant_lines()?.by_charge.first()?;
        Some((*charge, *tenant))
    }

    /// Charge of a tenant with positions here.
    pub(super) fn charge_of(&self, tenant: TenantSlot) -> Option<Charge> {
        let line = self.tenant_lines()?.lines.get(&tenant)?;
        Some(line.charge)
    }

    fn tenant_lines(&self) -> Option<&TenantLines> {
        match self {
            Self::Common(_) => None,
            Self::ByTenant(lines) => Some(lines),
        }
    }
}

impl TenantLines {
    fn insert(&mut self, place: LinePlace, tenant: TenantAccount) {
        let line = self.lines.entry(tenant.slot).or_insert_with(|| {
            let since = place.seq();
            self.by_charge.insert((tenant.charge, since, tenant.slot));
            TenantLine {
                places: BTreeSet::new(),
                first: place,
                charge: tenant.charge,
                since,
            }
        });
        line.places.insert(place);
        line.first = line.first.min(place);
    }

    fn remove(&mut self, place: LinePlace, tenant: TenantSlot) -> bool {
        let Some(line) = self.lines.get_mut(&tenant) else {
            return false;
        };
        let was_here = line.places.remove(&place);
        match line.places.first() {
            Some(first) => line.first = *first,
            None => {
                self.by_charge.remove(&(line.charge, line.since, tenant));
                self.lines.remove(&tenant);
            }
        }
        was_here
    }

    fn set_charge(&mut self, tenant: TenantAccount) {
        let slot = tenant.slot;
        if let Some(line) = self.lines.get_mut(&slot) {
            self.by_charge.remove(&(line.charge, line.since, slot));
            line.charge = tenant.charge;
            self.by_charge.insert((line.charge, line.since, slot));
        }
    }
}

/// The window over the tenants of two sets, from the least charge of both; `None` without fairness between tenants.
pub(super) fn window(sets: [Option<&LineSet>; 2], quantum: Charge) -> Option<TenantWindow> {
    let [first, second] = sets.map(|set| set.and_then(LineSet::tenant_lines));
    let [first, second] = [first.or(second)?, second.unwrap_or(first?)];
    if second.lines.is_empty() || core::ptr::eq(first, second) {
        return Some(TenantWindow::new(first.by_charge.iter(), quantum));
    }
    let both = first.by_charge.iter().merge(&second.by_charge);
    Some(TenantWindow::new(both, quantum))
}

impl TenantWindow {
    /// The first tenants, least charged first. A tenant with requests in both sets comes twice, maybe with others in between.
    fn new<'a>(
        by_charge: impl Iterator<Item = &'a (Charge, QueueSeq, TenantSlot)>,
        quantum: Charge,
    ) -> Self {
        let mut window = Self {
            tenants: SmallVec::new(),
            limit: Charge::MAX,
        };
        for (charge, _, slot) in by_charge.take(2 * TENANTS_SHOWN_MAX) {
            if window.tenants.is_empty() {
                window.limit = charge.plus(quantum);
            }
            if *charge > window.limit || window.tenants.len() == TENANTS_SHOWN_MAX {
                break;
            }
            if !window.tenants.contains(slot) {
                window.tenants.push(*slot);
            }
        }
        window
    }

    /// Whether the window shows a tenant of this charge.
    pub(super) fn admits(&self, charge: Charge) -> bool {
        charge <= self.limit
    }
}

/// Positions of two sets within a span, in order, of the tenants that the window shows.
pub(super) fn positions<'a>(
    sets: [Option<&'a LineSet>; 2],
    span: &Span,
    window: Option<&TenantWindow>,
) -> impl Iterator<Item = LinePlace> + use<'a> {
    let Some(window) = window else {
        return Either::Left(of_common_lines(sets, span));
    };
    let mut heads = Vec::with_capacity(window.tenants.len());
    for lines in sets.into_iter().flatten().filter_map(LineSet::tenant_lines) {
        for line in window
            .tenants
            .iter()
            .filter_map(|slot| lines.lines.get(slot))
        {
            heads.extend(span.ranges().filter_map(|range| line.head(range, span)));
        }
    }
    let mut heads = BinaryHeap::from(heads);
    Either::Right(core::iter::from_fn(move || {
        let mut head = heads.peek_mut()?;
        let place = head.place;
        match head.advance() {
            Some(next) => head.place = next,
            None => drop(PeekMut::pop(head)),
        }
        Some(place)
    }))
}

/// The next position of one tenant's line in a span. In the order of a binary heap, the greatest head is the next position.
#[derive(Debug)]
struct LineHead<'a> {
    place: LinePlace,
    /// The end of the span.
    last: LinePlace,
    /// Whether positions of several lanes are merged.
    is_merged: bool,
    places: &'a BTreeSet<LinePlace>,
    /// The positions behind this one, once they are needed.
    rest: Option<btree_set::Range<'a, LinePlace>>,
}

impl LineHead<'_> {
    /// The next position of the line.
    fn advance(&mut self) -> Option<LinePlace> {
        if self.places.len() == 1 || self.place >= self.last {
            return None;
        }
        let behind = self.place.next()..=self.last;
        let rest = self.rest.get_or_insert_with(|| self.places.range(behind));
        rest.next().copied()
    }

    const fn key(&self) -> u128 {
        if self.is_merged {
            self.place.without_lane()
        } else {
            self.place.number()
        }
    }
}

impl TenantLine {
    fn head(&self, (from, last): (LinePlace, LinePlace), span: &Span) -> Option<LineHead<'_>> {
        let place = if self.first >= from {
            self.first
        } else {
            *self.places.range(from..=last).next()?
        };
        (place <= last).then_some(LineHead {
            place,
            last,
            is_merged: span.is_merged(),
            places: &self.places,
            rest: None,
        })
    }
}

impl Ord for LineHead<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl PartialOrd for LineHead<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for LineHead<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for LineHead<'_> {}

fn of_common_lines<'a>(
    sets: [Option<&'a LineSet>; 2],
    span: &Span,
) -> impl Iterator<Item = LinePlace> + use<'a> {
    let [open, pinned] = sets.map(|set| match set {
        Some(LineSet::Common(places)) => Some(places),
        Some(LineSet::ByTenant(_)) | None => None,
    });
    let of_set = |places: Option<&'a BTreeSet<LinePlace>>| {
        let of_range = |(from, to)| Some(places?.range(from..=to));
        let mut ranges = span.ranges().map(of_range);
        let [first, second] = [ranges.next(), ranges.next()].map(Option::flatten);
        let [first, second] = [first, second].map(|range| range.into_iter().flatten());
        first.merge_by(second, span.comparison())
    };
    of_set(open)
        .merge_by(of_set(pinned), span.comparison())
        .copied()
}
