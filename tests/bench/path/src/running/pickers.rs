//! Endpoint pickers: external processors that read the body of a request from Envoy and name its endpoint.
//!
//! Each of them stands behind the same Envoy, in the configuration that Istio writes for an InferencePool.

use std::net::SocketAddr;
use std::process::Command;

use isotherm_harness::peers::{ReferencePicker, behind_picker, wait_for_response};
use isotherm_harness::process::Process;
use isotherm_harness::{GatewayShape, Tools, port};

use super::{Companion, RunningVariant, builder, floor_files};
use crate::variant::Variant;

impl RunningVariant {
    /// Isotherm without its filter.
    pub(super) async fn picker(replicas: &[SocketAddr]) -> anyhow::Result<Self> {
        let builder = builder(Variant::Picker, replicas);
        let builder = builder.envoy(|document| GatewayShape::Istio.apply(document));
        Self::of_stack(Variant::Picker, builder).await
    }

    /// An external processor that sends every chunk back and names no endpoint.
    pub(super) async fn picker_echo(replicas: &[SocketAddr]) -> anyhow::Result<Self> {
        let (program, _) = floor_files()?;
        let port = port::reserve()?;
        let address = port.address();
        let log = Tools::find()?.output.join("bench/echo.log");
        let mut command = Command::new(program);
        command.arg(address.to_string());
        let process = Process::start("isotherm-bench-floor", &mut command, &log)?;
        let variant = Variant::PickerEcho;
        let builder = behind_picker(builder(variant, replicas), replicas, address);
        Ok(Self {
            companion: Some(Companion::Floor {
                process,
                _port: port,
            }),
            ..Self::of_stack(variant, builder).await?
        })
    }

    /// The reference endpoint picker, with an API server that lists the replicas.
    pub(super) async fn reference_picker(replicas: &[SocketAddr]) -> anyhow::Result<Option<Self>> {
        let Some(mut picker) = ReferencePicker::start("bench-reference", replicas).await? else {
            return Ok(None);
        };
        let variant = Variant::ReferencePicker;
        let builder = behind_picker(builder(variant, replicas), replicas, picker.address);
        let running = Self::of_stack(variant, builder).await?;
        wait_for_response(running.address, &mut picker.process).await?;
        Ok(Some(Self {
            companion: Some(Companion::Picker(Box::new(picker))),
            ..running
        }))
    }
}
