//! Steps of a router, one by one: what a bench of single events needs of a [`Load`].

use isotherm_router::{
    AdapterKey, Effect, Event, Load as ReplicaLoad, PolicyFactory, ReplicaId, RequestId, Scope,
    Time,
};

use crate::load::Load;
use crate::worst::Input;

impl Load {
    /// Handles one input, and leaves its effects in the router.
    pub fn apply(&mut self, input: Input) {
        match input {
            Input::Event(after, event) => {
                self.pass(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX));
                self.handle(event);
            }
            Input::Configuration(config) => {
                let now = self.now();
                self.router.reconfigure(now, config);
            }
        }
    }

    /// Handles one event, and leaves its effects in the router.
    pub(crate) fn handle(&mut self, event: Event) {
        let now = self.now();
        self.router.handle(now, event);
    }

    /// Whether the router is to be called again at once.
    #[must_use]
    pub fn is_due(&self) -> bool {
        let due = self.router.poll_timeout();
        due.is_some_and(|due| due <= self.now())
    }

    /// Calls the router again.
    pub fn handle_timeout(&mut self) {
        let now = self.now();
        self.router.handle_timeout(now);
    }

    /// Takes all effects out of the router.
    pub fn take_effects(&mut self) {
        while let Some(effect) = self.router.poll_effect() {
            if let Effect::Dispatch(id, _) = effect {
                self.running.push_back(id);
            }
        }
    }

    pub(crate) const fn now(&self) -> Time {
        Time::from_nanos(self.now)
    }

    pub(crate) fn oldest_running(&mut self) -> Option<RequestId> {
        self.running.pop_front()
    }

    pub(crate) const fn last_request(&self) -> RequestId {
        RequestId(self.next_request.saturating_sub(1))
    }

    pub(crate) fn policy(&self) -> PolicyFactory {
        self.policy.clone()
    }

    /// Lets all further requests name this adapter.
    pub(crate) const fn set_adapter(&mut self, adapter: AdapterKey) {
        self.adapter = Some(adapter);
    }

    /// Lets these regions serve all further requests.
    pub(crate) fn set_scope(&mut self, scope: Scope) {
        self.scope = scope;
    }

    /// A probe of an idle replica.
    pub(crate) fn probe(&self, replica: u32, kv_capacity_tokens: Option<u64>) -> Event {
        Event::Probed {
            replica: ReplicaId(replica),
            load: ReplicaLoad {
                kv_capacity_tokens,
                ..ReplicaLoad::default()
            },
            sent: self.now(),
        }
    }
}
