//! What the receiver of a notification said about a failure. Only the log has it: a degradation is shown to clients without a token, and
//! what a server answers may be meant for the agent alone.

/// Bytes of the receiver's output that are logged.
pub(super) const SHOWN: usize = 200;

/// Logs the first line with a text of the first [`SHOWN`] bytes.
pub(super) fn log_first_line(receiver: &str, output: &[u8]) {
    let text = String::from_utf8_lossy(output.get(..SHOWN).unwrap_or(output));
    if let Some(answer) = text.lines().map(str::trim).find(|line| !line.is_empty()) {
        tracing::warn!(
            event = "notification_failed",
            receiver,
            answer,
            "the receiver of a notification answered with a failure"
        );
    }
}
