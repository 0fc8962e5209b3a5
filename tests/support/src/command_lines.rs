//! Command lines of the documentation.

/// Returns the command lines of a block, with continued lines joined and without what a here-document writes.
/// On a console, commands follow `$ `, and all other lines are output.
pub fn command_lines(lines: &[impl AsRef<str>], is_console: bool) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    let mut is_continued = false;
    let mut document = None;
    for line in lines.iter().map(AsRef::as_ref) {
        if document.is_some() {
            document = document.filter(|end| line.trim() != *end);
            continue;
        }
        let line = match line.strip_prefix("$ ") {
            Some(command) if is_console => command,
            None if is_console && !is_continued => continue,
            _ => line,
        };
        let (line, goes_on) = line.strip_suffix('\\').map_or((line, false), |line| (line, true));
        match commands.last_mut() {
            Some(last) if is_continued => last.push_str(line.trim_start()),
            _ => commands.push(line.to_owned()),
        }
        is_continued = goes_on;
        document = line.split_once("<<'").and_then(|(_, rest)| rest.split_once('\'')).map(|(end, _)| end);
    }
    commands
}
