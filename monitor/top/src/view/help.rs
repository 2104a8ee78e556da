//! The keys.

use ratatui::text::Line;

use crate::text::wrap;
use crate::view::look::{Look, labelled};

const KEYS: [(&str, &str); 12] = [
    ("up, down", "select a workload or an incident; page up, page down: by ten"),
    ("tab, arrows", "switch the signal whose ranking is shown"),
    ("i", "switch between the ranking and the incidents"),
    ("enter", "open the selected incident"),
    ("s", "sort by order of eviction, memory, change, stalls or name"),
    ("/", "filter by namespace, pod, owner or cgroup"),
    ("w", "what if: type a threshold such as 500Mi or 10%"),
    ("[ ]", "step through the recorded minute; { }: by ten"),
    ("d", "what the agent is missing, and what to do about it"),
    ("esc", "back to the present, without filter and what if"),
    ("c", "colour on or off"),
    ("q", "quit"),
];

const NOTES: [&str; 4] = [
    "In an incident, [ ] step through the recorded minute and on into the next incident; { } step by ten; left and right open the \
     neighbours; up and down scroll; esc closes it.",
    "A bar shows how much is left. In it | is a hard threshold, : a soft threshold, w the what-if threshold. Beside it is the last minute, \
     from its lowest to its highest value; a steady value is in the middle.",
    "change is the growth of memory. stalls is the time for which tasks have waited in reclaim.",
    "NEXT would be evicted first. - is exempt.",
];

pub fn lines(look: Look, columns: usize) -> Vec<Line<'static>> {
    let mut lines = vec![look.title("keys", columns)];
    lines.extend(KEYS.iter().flat_map(|(keys, meaning)| labelled(keys, meaning, columns)));
    lines.push(Line::default());
    lines.extend(NOTES.iter().flat_map(|note| wrap(note, columns)).map(Line::raw));
    lines.push(Line::styled("any key closes this", look.faint()));
    lines
}
