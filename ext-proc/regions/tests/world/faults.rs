//! Faults and their repair.

use isotherm_regions::Event;

use super::{Due, MS, Nanos, World, members};

#[derive(Clone, Debug)]
pub enum Fault {
    /// The service dies. With `silent`, its host does not refuse connections.
    Service { at: usize, silent: bool },
    /// The region's Envoy dies.
    Gateway { at: usize },
    /// The service and the Envoy die.
    Both { at: usize },
    /// The whole region dies, with its replicas.
    Region { at: usize },
    /// The service is suspended.
    Freeze { at: usize },
    /// Messages of one region do not reach the other.
    OneWay { from: usize, to: usize },
    /// Two regions cannot reach each other.
    Partition { a: usize, b: usize },
    /// A region is cut off from all others.
    Isolation { at: usize },
    /// A region's certificate is wrong; its links are dialled anew.
    Certificate { at: usize },
    /// The delay between two regions is long.
    Slow { a: usize, b: usize, by: Nanos },
    /// A region's replicas are replaced.
    Members { at: usize },
    /// The service dies and its disk is empty when it comes back.
    Disk { at: usize },
}

impl World {
    /// Breaks things at random up to this time, and repairs most of them again.
    pub fn plan(&mut self, start: Nanos, end: Nanos) {
        let pace = self.random.between(300, 4000);
        let mut at = start;
        while at < end {
            let fault = self.draw();
            let lasting = match self.random.below(4) {
                0 => self.random.between(20, 400),
                1 => self.random.between(400, 2_000),
                2 => self.random.between(1_500, 6_000),
                _ => self.random.between(4_000, 15_000),
            };
            self.at(at, Due::Fault(fault.clone()));
            self.at((at + lasting * MS).min(end), Due::Repair(fault));
            at += self.random.between(1, pace * 2) * MS;
        }
    }

    /// Kills region 0 for most of the time, while its successors die, freeze, restart and lose each other for about as long as a
    /// death proof takes.
    pub fn contest(&mut self, start: Nanos, end: Nanos) {
        let first = Fault::Service {
            at: 0,
            silent: self.random.chance(20),
        };
        self.at(start, Due::Fault(first.clone()));
        if self.random.chance(30) {
            let back = self.random.between(start, end);
            self.at(back, Due::Repair(first));
        }
        let successors = self.regions.len() - 1;
        let mut at = start;
        loop {
            at += self.random.between(100, 3_000) * MS;
            if at >= end {
                return;
            }
            let one = 1 + self.random.index(successors);
            let other = 1 + self.random.index(successors);
            let fault = match self.random.below(12) {
                0..=4 => Fault::Service {
                    at: one,
                    silent: false,
                },
                5 => Fault::Gateway { at: one },
                6 | 7 => Fault::Freeze { at: one },
                8 => Fault::Disk { at: one },
                9 => Fault::Certificate { at: one },
                _ if one == other => Fault::Isolation { at: one },
                _ => Fault::Partition { a: one, b: other },
            };
            let lasting = if self.random.chance(30) {
                self.random.between(10, 600)
            } else if matches!(fault, Fault::Freeze { .. }) {
                self.random.between(4_000, 14_000)
            } else {
                self.random.between(600, 5_000)
            };
            self.at(at, Due::Fault(fault.clone()));
            self.at((at + lasting * MS).min(end), Due::Repair(fault));
        }
    }

    fn draw(&mut self) -> Fault {
        let count = self.regions.len();
        let at = self.random.index(count);
        let other = (at + 1 + self.random.index(count - 1)) % count;
        match self.random.below(20) {
            0..=4 => Fault::Service {
                at,
                silent: self.random.chance(30),
            },
            5 | 6 => Fault::Gateway { at },
            7 => Fault::Both { at },
            8 => Fault::Region { at },
            9 | 10 => Fault::Freeze { at },
            11 => Fault::OneWay {
                from: at,
                to: other,
            },
            12..=14 => Fault::Partition { a: at, b: other },
            15 => Fault::Isolation { at },
            16 => Fault::Certificate { at },
            17 => Fault::Slow {
                a: at,
                b: other,
                by: self.random.between(20, 500) * MS,
            },
            18 => Fault::Members { at },
            _ => Fault::Disk { at },
        }
    }

    pub fn strike(&mut self, fault: &Fault) {
        self.note(format!("{fault:?}"));
        match *fault {
            Fault::Service { at, silent } => {
                self.regions[at].host = !silent;
                self.kill(at);
            }
            Fault::Gateway { at } => self.gateway(at, false),
            Fault::Both { at } => {
                self.kill(at);
                self.gateway(at, false);
            }
            Fault::Region { at } => {
                self.regions[at].host = false;
                self.kill(at);
                self.gateway(at, false);
                self.regions[at].replicas = false;
            }
            Fault::Freeze { at } => {
                if self.regions[at].service.is_some() {
                    self.regions[at].frozen = true;
                }
            }
            Fault::OneWay { from, to } => self.cut[from][to] += 1,
            Fault::Partition { a, b } => {
                self.cut[a][b] += 1;
                self.cut[b][a] += 1;
            }
            Fault::Isolation { at } => {
                for other in 0..self.regions.len() {
                    self.cut[at][other] += 1;
                    self.cut[other][at] += 1;
                }
            }
            Fault::Certificate { at } => {
                self.regions[at].trusted = false;
                self.dial_again(at);
            }
            Fault::Slow { a, b, by } => {
                self.delay[a][b] += by;
                self.delay[b][a] += by;
            }
            Fault::Members { at } => {
                let pools = members(at, self.random.below(200));
                self.regions[at].members.clone_from(&pools);
                if self.runs(at) {
                    self.call(at, Event::LocalPools(pools));
                }
            }
            Fault::Disk { at } => {
                self.kill(at);
                self.regions[at].disk.clear();
            }
        }
    }

    pub fn repair(&mut self, fault: &Fault) {
        self.note(format!("repaired: {fault:?}"));
        match *fault {
            Fault::Service { at, .. } | Fault::Disk { at } => {
                self.regions[at].host = true;
                self.start(at);
            }
            Fault::Gateway { at } => self.gateway(at, true),
            Fault::Both { at } | Fault::Region { at } => {
                self.regions[at].host = true;
                self.regions[at].replicas = true;
                self.regions[at].gateway = true;
                self.start(at);
                self.gateway(at, true);
            }
            Fault::Freeze { at } => {
                if self.regions[at].frozen {
                    self.wake(at);
                }
            }
            Fault::OneWay { from, to } => self.cut[from][to] -= 1,
            Fault::Partition { a, b } => {
                self.cut[a][b] -= 1;
                self.cut[b][a] -= 1;
            }
            Fault::Isolation { at } => {
                for other in 0..self.regions.len() {
                    self.cut[at][other] -= 1;
                    self.cut[other][at] -= 1;
                }
            }
            Fault::Certificate { at } => {
                self.regions[at].trusted = true;
                self.dial_again(at);
            }
            Fault::Slow { a, b, by } => {
                self.delay[a][b] -= by;
                self.delay[b][a] -= by;
            }
            Fault::Members { .. } => {}
        }
    }

    /// Repairs everything.
    pub fn heal(&mut self) {
        self.note("healed".to_owned());
        for at in 0..self.regions.len() {
            if self.regions[at].frozen {
                self.wake(at);
            }
            self.regions[at].host = true;
            self.regions[at].replicas = true;
            self.regions[at].trusted = true;
            self.start(at);
            self.gateway(at, true);
        }
    }

    fn gateway(&mut self, at: usize, up: bool) {
        self.regions[at].gateway = up;
        if self.runs(at) {
            self.call(at, Event::GatewayChanged(up));
        } else if self.regions[at].frozen {
            // It finds out when it wakes.
            self.at(self.now + 50 * MS, Due::Gateway { at });
        }
    }

    /// A frozen service that woke learns how its gateway is.
    pub fn gateway_again(&mut self, at: usize) {
        if self.regions[at].frozen {
            self.at(self.now + 50 * MS, Due::Gateway { at });
        } else if self.runs(at) {
            let up = self.regions[at].gateway;
            self.call(at, Event::GatewayChanged(up));
        }
    }

    /// All links to and from a region are dialled anew, as after a change of its certificate.
    pub fn dial_again(&mut self, at: usize) {
        for other in 0..self.regions.len() {
            if other == at {
                continue;
            }
            for (from, to) in [(at, other), (other, at)] {
                if self.runs(from) && self.dials[from][to].up.is_some() {
                    self.redial(from, to);
                }
            }
        }
    }
}
