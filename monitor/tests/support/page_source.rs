//! The headings and columns that the source of the status page has.

use std::collections::BTreeMap;

#[derive(Debug, PartialEq)]
pub struct Shown {
    pub headings: Vec<String>,
    /// By the id of the table.
    pub columns: BTreeMap<String, Vec<String>>,
}

/// A part of the page.
struct Section {
    heading: String,
    /// The part is shown only while it has something to say.
    is_optional: bool,
    table: Option<(String, Vec<String>)>,
}

/// Returns what a picture with these headings should show: all parts of the page but the optional ones that it lacks.
pub fn expected(html: &str, headings: &[String]) -> Shown {
    let sections = html.split("<section").skip(1).map(section);
    let sections = sections.filter(|it| !it.is_optional || headings.contains(&it.heading));
    let (mut all, mut columns) = (Vec::new(), BTreeMap::new());
    for section in sections {
        all.push(section.heading);
        columns.extend(section.table);
    }
    Shown { headings: all, columns }
}

fn section(text: &str) -> Section {
    let text = text.split("</section>").next().unwrap();
    let (attributes, content) = text.split_once('>').unwrap();
    let table = content.split_once("<table id=\"").map(|(_, table)| {
        let columns = table.split("<th ").skip(1).map(|cell| between(cell, ">", "</th>"));
        (table.split('"').next().unwrap().to_owned(), columns.collect())
    });
    let is_optional = attributes.split_whitespace().any(|word| word == "hidden");
    Section { heading: between(content, "<h2>", "</h2>"), is_optional, table }
}

fn between(text: &str, begin: &str, end: &str) -> String {
    text.split_once(begin).and_then(|(_, rest)| rest.split_once(end)).unwrap().0.to_owned()
}
