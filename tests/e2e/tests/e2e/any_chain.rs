//! Isotherm in the filter chains of other people: every request ends as it does without Isotherm.
//!
//! One Envoy has a listener for each chain: a foreign filter in front of Isotherm's filters or behind them, with a decision
//! stream or without one; and one listener with the foreign filter alone, for comparison. The test prints a table.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use futures_util::StreamExt as _;
use futures_util::future::try_join;
use futures_util::stream;
use isotherm_e2e::fixture::scripted_as_shipped;
use isotherm_e2e::{Client, ScriptedReplica, chat, permit, send};
use isotherm_harness::envoy::socket_address;
use isotherm_harness::port::{self, ReservedPort};
use isotherm_harness::{Document, MODEL, Stack, WAIT_MAX, wait_until};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::foreign_filters::{ForeignFilter, Processor};

const LISTENERS: &str = "static_resources/listeners";
const MANAGER: &str = "filter_chains/0/filters/0/typed_config";
/// The bytes that the filter holds here: less than those of the long body.
const HELD_BYTES: usize = 64 << 10;
/// Counts the requests about which external processing asked the service.
const EXTERNAL: &str = "http.llm.ext_proc.isotherm.streams_started";
/// Requests that are sent at once.
const REQUESTS_MAX: usize = 12;
/// The time that a request may take; a request that hangs would take for ever.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(30);

/// The place of a foreign filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    InFront,
    Behind,
    /// Without Isotherm's filters.
    Alone,
}

/// A filter chain, and the address of the listener that has it.
#[derive(Clone, Copy, Debug)]
struct Chain {
    filter: ForeignFilter,
    place: Place,
    has_stream: bool,
    address: SocketAddr,
}

impl Chain {
    /// Every chain; that of a filter alone comes before the others with the filter.
    fn all() -> anyhow::Result<Vec<(Self, ReservedPort)>> {
        let places = [
            (Place::Alone, false),
            (Place::InFront, true),
            (Place::InFront, false),
            (Place::Behind, true),
            (Place::Behind, false),
        ];
        let all = ForeignFilter::ALL.into_iter();
        let all = all.flat_map(|filter| places.map(|(place, stream)| (filter, place, stream)));
        all.map(|(filter, place, has_stream)| {
            let port = port::reserve()?;
            let chain = Self {
                filter,
                place,
                has_stream,
                address: port.address(),
            };
            Ok((chain, port))
        })
        .collect()
    }

    /// The listener `llm` with another port and this chain.
    fn listener(self, llm: &Value) -> anyhow::Result<Value> {
        let mut listener = Document(llm.clone());
        listener.set("name", self.address.to_string())?;
        listener.set("address", socket_address(&self.address))?;
        let configuration = format!(
            "{MANAGER}/http_filters/name=isotherm.request/typed_config/config/configuration/value"
        );
        let text = listener.get(&configuration)?.as_str();
        let mut filter = Document::parse(text.context("the configuration is text")?)?;
        filter.set("buffer_bytes_max", HELD_BYTES)?;
        if !self.has_stream {
            filter.remove("decision_stream")?;
        }
        if self.filter == ForeignFilter::Compressor {
            // Without this, responses are plain where the compressor is behind.
            filter.set("keep_accept_encoding", true)?;
        }
        listener.set(&configuration, filter.0.to_string())?;
        let filters = listener.get_mut(&format!("{MANAGER}/http_filters"))?;
        let filters = filters.as_array_mut().context("the filters are a list")?;
        let at = match self.place {
            Place::InFront => 0,
            Place::Behind | Place::Alone => filters.len() - 1,
        };
        filters.insert(at, self.filter.config()?);
        if self.place == Place::Alone {
            filters.retain(|filter| !is_isotherms(filter));
        }
        Ok(listener.0)
    }
}

fn is_isotherms(filter: &Value) -> bool {
    let name = filter["name"].as_str().unwrap_or_default();
    name.starts_with("isotherm.")
}

/// The kind of a request.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Chat,
    Stream,
    /// A body that is longer than the filter holds.
    Long,
    /// A body with a repeated member, which the filter does not read.
    Unreadable,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Chat, Self::Stream, Self::Long, Self::Unreadable];

    fn body(self) -> String {
        let mut body = chat("hello");
        match self {
            Self::Chat => {}
            Self::Stream => body["stream"] = true.into(),
            Self::Long => body = chat(&"A long prompt. ".repeat(2 * HELD_BYTES / 15)),
            Self::Unreadable => {
                return format!(r#"{{"model":"{MODEL}","messages":[],"messages":[]}}"#);
            }
        }
        body.to_string()
    }
}

/// A response, as its client received it to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ReceivedResponse {
    status: u16,
    encoding: Option<String>,
    /// The body; of a compressed one, whose bytes depend on the pieces, whether it is there.
    body: String,
}

/// Sends a request, and waits for the end of its response.
async fn receive(chain: &Chain, kind: Kind) -> anyhow::Result<ReceivedResponse> {
    let client = Client::new(&format!("http://{}", chain.address))?;
    let request = client.post_chat(&json!({})).body(kind.body());
    let request = request.header("accept-encoding", "gzip");
    let response = timeout(REQUEST_TIME_MAX, send(request)).await;
    let response = response.context("the response does not end")??;
    let encoding = response.header("content-encoding").map(str::to_owned);
    let body = match encoding {
        Some(_) if response.body.is_empty() => String::new(),
        Some(_) => "compressed".to_owned(),
        None => String::from_utf8_lossy(&response.body).into_owned(),
    };
    Ok(ReceivedResponse {
        status: response.status,
        encoding,
        body,
    })
}

/// Sends a request of each kind through each chain.
async fn receive_all(chains: &[Chain]) -> Vec<anyhow::Result<ReceivedResponse>> {
    let cases = chains
        .iter()
        .flat_map(|chain| Kind::ALL.map(|kind| (chain, kind)));
    stream::iter(cases)
        .map(|(chain, kind)| receive(chain, kind))
        .buffered(REQUESTS_MAX)
        .collect()
        .await
}

/// The table of all chains, and the requests that ended otherwise than without Isotherm.
#[derive(Default)]
struct Table {
    text: String,
    failures: Vec<String>,
}

impl Table {
    /// Compares the responses of all chains while the service is in one state. Each filter alone comes before its other chains.
    fn add(
        &mut self,
        state: &str,
        chains: &[Chain],
        responses: &[anyhow::Result<ReceivedResponse>],
    ) {
        let kinds = Kind::ALL.len();
        let mut alone: &[anyhow::Result<ReceivedResponse>] = &[];
        for (chain, own) in chains.iter().zip(responses.chunks(kinds)) {
            let Chain {
                filter,
                place,
                has_stream,
                ..
            } = chain;
            if *place == Place::Alone {
                alone = own;
            }
            let _ = write!(
                self.text,
                "| {filter:?} | {place:?} | {has_stream} | {state} |"
            );
            for ((kind, own), alone) in Kind::ALL.iter().zip(own).zip(alone) {
                let is_same = matches!((own, alone), (Ok(own), Ok(alone)) if own == alone);
                let shown = match own {
                    Ok(response) => response.status.to_string(),
                    Err(error) => format!("{error:#}"),
                };
                let mark = if is_same { "" } else { " **differs**" };
                let _ = write!(self.text, " {shown}{mark} |");
                if !is_same {
                    let case = format!("{filter:?} {place:?} {has_stream} {state} {kind:?}");
                    self.failures
                        .push(format!("{case}: {own:?}, alone {alone:?}"));
                }
            }
            self.text.push('\n');
        }
    }

    /// Prints the table, and fails if a request ended otherwise.
    fn finish(self) -> anyhow::Result<()> {
        println!(
            "| filter | place | decision stream | service | chat | stream | long | unreadable |"
        );
        println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
        println!("{}", self.text);
        anyhow::ensure!(self.failures.is_empty(), "{}", self.failures.join("\n"));
        Ok(())
    }
}

/// Checks that requests took both ways to the service, after each chain had two requests of each kind.
async fn check_ways(stack: &Stack, chains: &[Chain]) -> anyhow::Result<()> {
    let with_isotherm = chains.iter().filter(|chain| chain.place != Place::Alone);
    let all = u64::try_from(2 * Kind::ALL.len() * with_isotherm.count())?;
    let asked = stack.envoy().stat(EXTERNAL).await?;
    anyhow::ensure!((all / 2..all).contains(&asked), "{asked} of {all} asked");
    Ok(())
}

/// Kills the service and starts it again, after the replica has got requests of the load.
async fn restart(stack: &mut Stack, replica: &ScriptedReplica) -> anyhow::Result<()> {
    let before = replica.received().len();
    wait_until(WAIT_MAX, "the load", || async {
        replica.received().len() > before + REQUESTS_MAX
    })
    .await?;
    stack.service_mut().kill()?;
    stack.service_mut().start().await
}

#[tokio::test]
async fn every_request_ends_in_any_chain_as_it_does_without_isotherm() -> anyhow::Result<()> {
    let _permit = permit::exclusive().await?;
    let replica = ScriptedReplica::start("a").await?;
    let processor = Processor::start().await?;
    let (chains, _ports): (Vec<Chain>, Vec<ReservedPort>) = Chain::all()?.into_iter().unzip();
    let (cluster, all) = (processor.cluster(), chains.clone());
    let stack = scripted_as_shipped("any-chain", &[&replica], 64).workers(1);
    let stack = stack.envoy(move |document| {
        document.push("static_resources/clusters", cluster)?;
        let llm = document.get(&format!("{LISTENERS}/name=llm"))?.clone();
        for chain in all {
            document.push(LISTENERS, chain.listener(&llm)?)?;
        }
        Ok(())
    });
    let mut stack = stack.start().await?;
    stack.envoy().wait_for_decision_streams(2).await?;
    let mut table = Table::default();
    drop(receive_all(&chains).await); // the replica has every prompt in its cache from here on
    table.add("alive", &chains, &receive_all(&chains).await);
    check_ways(&stack, &chains).await?;
    let (under_load, ()) = try_join(
        async { anyhow::Ok(receive_all(&chains).await) },
        restart(&mut stack, &replica),
    )
    .await?;
    table.add("restarted", &chains, &under_load);
    stack.service_mut().kill()?;
    table.add("dead", &chains, &receive_all(&chains).await);
    table.finish()
}
