//! The list of incidents as a table.

use std::io::{self, Write};

use crate::incidents::Incident;

use super::super::output::printable;

/// Column widths.
const TIME: usize = 20;
const KIND: usize = 8;
const ID: usize = 29;

/// Writes the heading and a line for each incident.
pub fn write(out: &mut impl Write, incidents: &[Incident]) -> io::Result<()> {
    writeln!(out, "{:<TIME$}  {:<KIND$}  {:<ID$}  WHAT HAPPENED", "TIME", "KIND", "ID")?;
    incidents.iter().try_for_each(|incident| row(out, incident))
}

pub fn row(out: &mut impl Write, incident: &Incident) -> io::Result<()> {
    let time = incident.time.strftime("%Y-%m-%dT%H:%M:%SZ");
    let (id, summary) = (printable(&incident.id), printable(&incident.summary));
    writeln!(out, "{time:<TIME$}  {:<KIND$}  {id:<ID$}  {summary}", incident.kind.words())
}
