//! The calls of CRI v1 that scenarios make, as the kubelet makes them. Field numbers are those of its api.proto.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::call::call;
use super::runtime::Runtime;
use super::wire::{Answer, Message};

/// The time limit of a call. Every call is slow under emulation.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sandbox {
    pub id: String,
    pub ready: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    pub id: String,
    pub sandbox: String,
    pub running: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    pub id: String,
    pub names: Vec<String>,
    pub bytes: u64,
}

fn socket() -> &'static Path {
    Path::new(Runtime::here().socket())
}

fn runtime(method: &str, request: &Message) -> Result<Vec<u8>> {
    call(socket(), &format!("/runtime.v1.RuntimeService/{method}"), request, LIMIT)
}

fn images_service(method: &str, request: &Message) -> Result<Vec<u8>> {
    call(socket(), &format!("/runtime.v1.ImageService/{method}"), request, LIMIT)
}

/// Returns name and version of the runtime. It is an error while the runtime does not serve.
pub fn version() -> Result<String> {
    let answer = call(socket(), "/runtime.v1.RuntimeService/Version", &Message::default(), Duration::from_secs(5))?;
    let answer = Answer::parse(&answer)?;
    Ok(format!("{} {}", answer.text(2), answer.text(3)))
}

pub fn run_sandbox(config: &Message) -> Result<String> {
    let answer = runtime("RunPodSandbox", &Message::default().part(1, config))?;
    Ok(Answer::parse(&answer)?.text(1))
}

pub fn create_container(sandbox: &str, config: &Message, sandbox_config: &Message) -> Result<String> {
    let request = Message::default().text(1, sandbox).part(2, config).part(3, sandbox_config);
    let answer = runtime("CreateContainer", &request)?;
    Ok(Answer::parse(&answer)?.text(1))
}

pub fn start_container(id: &str) -> Result<()> {
    runtime("StartContainer", &Message::default().text(1, id)).map(drop)
}

/// Stops a container: SIGTERM, then SIGKILL after this many seconds.
pub fn stop_container(id: &str, seconds: u64) -> Result<()> {
    runtime("StopContainer", &Message::default().text(1, id).number(2, seconds)).map(drop)
}

/// Returns the exit code of a container.
pub fn exit_code(id: &str) -> Result<u64> {
    let answer = runtime("ContainerStatus", &Message::default().text(1, id))?;
    let status = Answer::parse(&answer)?.parts(1)?;
    Ok(status.first().map_or(0, |status| status.number(7)))
}

/// Returns the output of a command inside a container.
pub fn exec(id: &str, command: &[&str]) -> Result<String> {
    let request = command.iter().fold(Message::default().text(1, id), |request, word| request.text(2, word));
    let answer = runtime("ExecSync", &request.number(3, LIMIT.as_secs()))?;
    let answer = Answer::parse(&answer)?;
    Ok(format!("{}{}", answer.text(1), answer.text(2)))
}

pub fn stop_sandbox(id: &str) -> Result<()> {
    runtime("StopPodSandbox", &Message::default().text(1, id)).map(drop)
}

/// Removes a sandbox and its containers.
pub fn remove_sandbox(id: &str) -> Result<()> {
    runtime("RemovePodSandbox", &Message::default().text(1, id)).map(drop)
}

pub fn remove_image(name: &str) -> Result<()> {
    images_service("RemoveImage", &Message::default().part(1, &Message::default().text(1, name))).map(drop)
}

pub fn sandboxes() -> Result<Vec<Sandbox>> {
    let answer = runtime("ListPodSandbox", &Message::default())?;
    let items = Answer::parse(&answer)?.parts(1)?;
    Ok(items.iter().map(|item| Sandbox { id: item.text(1), ready: item.number(3) == 0 }).collect())
}

pub fn containers() -> Result<Vec<Container>> {
    const RUNNING: u64 = 1;
    let answer = runtime("ListContainers", &Message::default())?;
    let items = Answer::parse(&answer)?.parts(1)?;
    let container =
        |item: &Answer<'_>| Container { id: item.text(1), sandbox: item.text(2), running: item.number(6) == RUNNING };
    Ok(items.iter().map(container).collect())
}

pub fn images() -> Result<Vec<Image>> {
    let answer = images_service("ListImages", &Message::default())?;
    let items = Answer::parse(&answer)?.parts(1)?;
    Ok(items.iter().map(|item| Image { id: item.text(1), names: item.texts(2), bytes: item.number(4) }).collect())
}
