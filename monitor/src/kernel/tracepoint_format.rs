//! Parses the layout of a tracepoint's record from its `format` file.
//!
//! The layout is not an ABI: RHEL's common header is longer, and `mark_victim` got its fields in 6.9 and in stable backports.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    pub name: &'a str,
    pub offset: u16,
    pub size: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracepointFormat<'a> {
    fields: Vec<Field<'a>>,
}

impl<'a> TracepointFormat<'a> {
    /// Parses the whole file. Lines that do not describe a field are skipped.
    pub fn parse(text: &'a str) -> Result<Self, String> {
        let mut fields = Vec::new();
        for (index, line) in text.lines().enumerate() {
            if let Some(description) = line.trim_start().strip_prefix("field:") {
                let broken = || format!("line {}: not a field description: {:?}", index + 1, line.trim());
                fields.push(parse_field(description).ok_or_else(broken)?);
            }
        }
        Ok(Self { fields })
    }

    pub fn field(&self, name: &str) -> Option<Field<'a>> {
        self.fields.iter().copied().find(|field| field.name == name)
    }

    /// Returns the offset of a required field of this size.
    pub fn require(&self, name: &str, size: u16) -> Result<u16, String> {
        match self.field(name) {
            Some(field) if field.size == size => Ok(field.offset),
            Some(field) => Err(format!("field {name} has {} bytes instead of {size}", field.size)),
            None => Err(format!("no field {name}")),
        }
    }
}

/// Parses a declaration with offset, size and sign: `char comm[16]; offset:8; …`, or `__data_loc char[] comm; …` for text stored elsewhere.
fn parse_field(description: &str) -> Option<Field<'_>> {
    let mut parts = description.split(';').map(str::trim);
    let declaration = parts.next()?;
    let name = declaration.split_whitespace().next_back()?;
    let name = name.split('[').next()?.trim_start_matches('*');
    let (mut offset, mut size) = (None, None);
    for part in parts {
        match part.split_once(':') {
            Some(("offset", value)) => offset = value.trim().parse().ok(),
            Some(("size", value)) => size = value.trim().parse().ok(),
            _ => {}
        }
    }
    (!name.is_empty()).then_some(Field { name, offset: offset?, size: size? })
}

#[cfg(test)]
mod tests {
    use super::TracepointFormat;

    const HEADER: &str = "name: mark_victim\nID: 584\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
        \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n";

    /// 6.12, and 6.1 with the backport.
    const FULL: &str = "\n\
        \tfield:int pid;\toffset:8;\tsize:4;\tsigned:1;\n\
        \tfield:__data_loc char[] comm;\toffset:12;\tsize:4;\tsigned:0;\n\
        \tfield:unsigned long total_vm;\toffset:16;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned long anon_rss;\toffset:24;\tsize:8;\tsigned:0;\n\
        \tfield:uid_t uid;\toffset:48;\tsize:4;\tsigned:0;\n\
        \tfield:short oom_score_adj;\toffset:64;\tsize:2;\tsigned:1;\n\n\
        print fmt: \"pid=%d comm=%s\", REC->pid, __get_str(comm)\n";

    /// RHEL 9 adds common_preempt_lazy_count: all offsets are four bytes larger.
    const RHEL: &str = "\tfield:unsigned char common_preempt_lazy_count;\toffset:8;\tsize:1;\tsigned:0;\n\n\
        \tfield:char comm[16];\toffset:12;\tsize:16;\tsigned:1;\n\
        \tfield:pid_t pid;\toffset:28;\tsize:4;\tsigned:1;\n";

    /// Before 6.9.
    const PID_ONLY: &str = "\n\tfield:int pid;\toffset:8;\tsize:4;\tsigned:1;\n\nprint fmt: \"pid=%d\", REC->pid\n";

    #[test]
    fn offsets_are_those_of_the_file() {
        for (body, name, size, offset) in [
            (FULL, "pid", 4, 8),
            (FULL, "comm", 4, 12),
            (FULL, "anon_rss", 8, 24),
            (FULL, "oom_score_adj", 2, 64),
            (RHEL, "pid", 4, 28),
            (RHEL, "comm", 16, 12),
            (PID_ONLY, "pid", 4, 8),
        ] {
            let text = format!("{HEADER}{body}");
            let format = TracepointFormat::parse(&text).expect("parses");
            assert_eq!(format.require(name, size), Ok(offset), "{name} in {body}");
        }
    }

    #[test]
    fn a_missing_field_and_another_size_are_different_errors() {
        let text = format!("{HEADER}{PID_ONLY}");
        let format = TracepointFormat::parse(&text).expect("parses");
        assert_eq!(format.require("anon_rss", 8), Err("no field anon_rss".to_owned()));
        assert_eq!(format.require("pid", 8), Err("field pid has 4 bytes instead of 8".to_owned()));
    }

    #[test]
    fn a_broken_line_is_named() {
        for broken in ["\tfield:int pid;\toffset:x;\tsize:4;", "\tfield:;\toffset:8;\tsize:4;", "field:int pid"] {
            let text = format!("name: x\n{broken}\n");
            let error = TracepointFormat::parse(&text).expect_err(broken);
            assert!(error.starts_with("line 2: not a field description: "), "{error}");
        }
    }
}
