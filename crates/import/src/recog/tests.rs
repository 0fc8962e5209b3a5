use regex::bytes::RegexBuilder;

use super::*;

const OWN: &str = include_str!("../../../../tests/fixtures/fingerprints.toml");

fn matches(pattern: &str, text: &str) -> bool {
    let translated = translate(pattern, RubyOptions::default()).expect("it can be said");
    let found = |pattern: &str| {
        let regex = RegexBuilder::new(pattern).unicode(false).build();
        regex.unwrap_or_else(|error| panic!("{error}")).is_match(text.as_bytes())
    };
    found(&translated.pattern) && !translated.unless.is_some_and(|unless| found(&unless))
}

#[test]
fn what_ruby_spells_otherwise_means_the_same() {
    for (pattern, text, expected) in [
        (r"^\h+$", "c0ffee", true),
        (r"^[\h:]+$", "c0:ff", true),
        (r"^\H$", "c", false),
        (r"^a\/b\_c\<d\>$", "a/b_c<d>", true),
        (r"^a\Z", "a\n", true),
        (r"\Aa\z", "a\n", false),
        (r"^b$", "a\nb\nc", true),
        (r"^a . b$", "a · b", true),
        (r"^a .* b$", "a · b", true),
        (r"a.b", "a\nb", false),
        (r"a.-", "a\n-", false),
        (r"(?m)a.b", "a\nb", true),
        (r"(?m:a.)b", "a\nb", true),
        (r"(?-m:a.b)", "a\nb", false),
        (r"^a(?i)b|c$", "ac", true),
        (r"^a(?i)b|c$", "c", false),
        (r"^(?:a(?i)b|c)d$", "aBd", true),
        (r"^(?i:A)b$", "ab", true),
        (r"^\[a\]{x}$", "[a]{x}", true),
        (r"^a{,2}$", "aa", true),
        (r"^a{,2}$", "aaa", false),
        (r"^{a}$", "{a}", true),
        (r"^a++b$", "aab", true),
        (r"^(?>a|b)c$", "bc", true),
        (r"^a(?#what (it is)b$", "ab", true),
        (r"^[\w-.]+$", "a-.", true),
        (r"^[.-\w]+$", "a-.", true),
        (r"^[+--]+$", "+-", true),
        (r"^[]a]+$", "]a", true),
        (r"^[[:alpha:]-]+$", "a-", true),
        (r"^[a[0-9]]+$", "a1", true),
        (r"^\p{Alpha}\p{^Digit}\P{Space}$", "abc", true),
        (r"^\e\x1\0\012$", "\u{1b}\u{1}\0\n", true),
        (r"^\u00e9\u{e9}$", "éé", true),
        (r"^a\Rb$", "a\r\nb", true),
        (r"^(?!sshd)\w+$", "dropbear", true),
        (r"^(?!ssh)\w+$", "sshd", false),
        (r"(?i)^(?!SSH)\w+$", "sshd", false),
        (r"^(?!a|b(c))d?", "x", true),
    ] {
        assert_eq!(matches(pattern, text), expected, "{pattern} on {text:?}");
    }
}

#[test]
fn plain_groups_capture_no_longer_beside_named_ones() {
    let translated = translate(r"^(a)(?<name>b)\(?'c'", RubyOptions::default()).expect("it can be said");
    assert_eq!(translated.pattern, r"(?m)^(?:a)(?<name>b)\(?'c'");
}

#[test]
fn options_become_flags() {
    let pattern = |ignore_case, dot_matches_newline| {
        translate("a", RubyOptions { ignore_case, dot_matches_newline }).expect("it can be said").pattern
    };
    assert_eq!(pattern(false, false), "(?m)a");
    assert_eq!(pattern(true, false), "(?im)a");
    assert_eq!(pattern(false, true), "(?ms)a");
    assert_eq!(pattern(true, true), "(?ims)a");
}

#[test]
fn what_needs_backtracking_is_refused_by_name_and_place() {
    for (pattern, message) in [
        (r"(a)\1", "the backreference \\1 at byte 3 of the pattern needs a backtracking engine"),
        (r"a(?=b)", "a lookahead at byte 1 of the pattern needs a backtracking engine"),
        (r"a(?!b)", "a negative lookahead at byte 1 of the pattern needs a backtracking engine"),
        (r"(?<=a)b", "a lookbehind at byte 0 of the pattern needs a backtracking engine"),
        (
            r"^(?!a)b|c",
            "a lookahead before an alternation at byte 1 of the pattern needs a backtracking engine",
        ),
        (r"(?(1)a|b)", "a condition at byte 0 of the pattern needs a backtracking engine"),
        (r"[a", "a class at byte 0 of the pattern never ends"),
        (r"(?#a", "a comment at byte 0 of the pattern never ends"),
        (r"(?P<a>b)", "the group (?P at byte 0 of the pattern is not known"),
        (r"\p{Greek}", "the property {Greek} at byte 0 of the pattern does not apply to bytes"),
    ] {
        let error = translate(pattern, RubyOptions::default()).expect_err(pattern);
        assert_eq!(error.to_string(), message);
    }
}

const DATABASE: &str = r#"<?xml version='1.0' encoding='UTF-8'?>
<!DOCTYPE fingerprints>
<fingerprints matches="ssh.banner" protocol="SSH" database_type="service" preference="0.90">
  <!-- a comment with <markup> -->
  <fingerprint pattern="^Fnord[ _](\d[\d.]*)(?: &lt;(\w+)&gt;)?$" flags="REG_ICASE">
    <description>
      Fnord
      server
    </description>
    <example service.version="1.2" fnord.edition="pro">Fnord_1.2 &lt;pro&gt;</example>
    <example service.version="1.3"><![CDATA[fnord 1.3]]></example>
    <example _encoding="base64" service.version="1.4">
      Rm5vcmQg
      MS40
    </example>
    <example _filename="big.txt" service.version="1.5"/>
    <example _filename="../secret"/>
    <param pos="0" name="service.vendor" value="Fnord &amp; Sons"/>
    <param pos="1" name="service.version"/>
    <param pos="2" name="fnord.edition"/>
    <param pos="0" name="service.cpe23" value="cpe:/a:fnord:fnord:{service.version}"/>
    <param pos="2" name="_tmp.edition"/>
  </fingerprint>
  <fingerprint pattern="(a)\1">
    <description>Backs</description>
  </fingerprint>
  <fingerprint pattern="^a++$" flags="REG_DOT_NEWLINE, REG_LINE_ANY_CRLF">
    <description>Possessive</description>
    <example>nothing of the kind</example>
  </fingerprint>
  <fingerprint pattern="(" flags="REG_FNORD"><description>Flag</description></fingerprint>
</fingerprints>
"#;

fn import_text(text: &str) -> Result<ImportedDatabase, RecogImportError> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("fnord.xml");
    std::fs::create_dir(folder.path().join("fnord")).expect("it can be made");
    std::fs::write(folder.path().join("fnord/big.txt"), "FNORD 1.5").expect("it can be written");
    std::fs::write(&path, text).expect("it can be written");
    import(&path)
}

#[test]
fn a_database_is_read_as_recog_reads_it() {
    let imported = import_text(DATABASE).expect("it is a Recog database");
    let database = &imported.database;
    assert_eq!(database.matches, "ssh.banner");
    let names: Vec<_> = database.fingerprint.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["Fnord server", "Possessive"]);
    let document = FingerprintFile { database: vec![database.clone()] };
    let fingerprints = FingerprintSet::compile("", &document).expect("it compiles");
    let found = fingerprints.identify("ssh.banner", b"fnord 2.0").expect("it matches");
    assert_eq!(
        found.fields().collect::<Vec<_>>(),
        [
            ("service.cpe23", "cpe:/a:fnord:fnord:2.0"),
            ("service.vendor", "Fnord & Sons"),
            ("service.version", "2.0"),
            ("service.protocol", "ssh"),
        ]
    );
}

#[test]
fn every_kind_of_example_is_tried_and_a_wrong_one_named() {
    let imported = import_text(DATABASE).expect("it is a Recog database");
    let document = FingerprintFile { database: vec![imported.database.clone()] };
    let fingerprints = FingerprintSet::compile("", &document).expect("it compiles");
    let (count, mismatches) = verify(&imported.database, &fingerprints);
    let messages: Vec<_> = mismatches.iter().map(ToString::to_string).collect();
    assert_eq!(messages, ["example of \"Possessive\": \"nothing of the kind\": nothing matches it"]);
    assert_eq!(count, 5);
}

#[test]
fn what_is_left_out_or_changed_is_said_with_its_line() {
    let imported = import_text(DATABASE).expect("it is a Recog database");
    let remarks: Vec<_> = imported.remarks.iter().map(ToString::to_string).collect();
    assert_eq!(
        remarks,
        [
            "5: taken \"Fnord server\": without an example: its file ../secret is not in the folder of the database",
            "24: left out \"Backs\": the backreference \\1 at byte 3 of the pattern needs a backtracking engine",
            "27: taken \"Possessive\": a possessive repetition is read as a greedy one",
            "31: left out \"Flag\": its flag REG_FNORD is not known",
        ]
    );
}

#[test]
fn what_is_no_recog_database_is_refused_with_its_line() {
    for (text, message) in [
        ("", ":1: no <fingerprints> element: not a Recog database"),
        ("<a>\n</b>", ":2: "),
        ("<fingerprints>\n<fingerprint/>", ":2: a fingerprint without a pattern"),
        ("<fingerprints>\n\n<param pos='x' name='y'/>", ":3: pos=\"x\" is not a number"),
        ("<fingerprints><example>\n&fnord;", ":2: the entity &fnord; is not known"),
    ] {
        let error = import_text(text).expect_err(text).to_string();
        assert!(error.contains(message), "{error:?} for {text:?}");
    }
}

/// A database of one fingerprint a line.
fn database(fingerprints: impl Iterator<Item = String>) -> String {
    let mut text = "<fingerprints matches=\"ssh.banner\">\n".to_owned();
    fingerprints.for_each(|one| text.push_str(&one));
    text + "</fingerprints>\n"
}

#[test]
fn patterns_nested_without_end_are_left_out() {
    for pattern in
        ["^(?!".repeat(30_000), "[".repeat(200_000), "[b&amp;&amp;".repeat(50_000), "[".repeat(8_000)]
    {
        assert!(translate(&pattern.replace("&amp;", "&"), RubyOptions::default()).is_err());
    }
    assert!(translate("^(?!(?!a)b)c", RubyOptions::default()).is_err());
    assert_eq!(translate("[a[b[c]]]", RubyOptions::default()).unwrap().pattern, "(?m)[a[b[c]]]");
}

#[test]
fn the_line_of_the_last_of_many_faulty_fingerprints_is_right() {
    let many = 60_000;
    let text = database((0..many).map(|_| "<fingerprint pattern=\"(?=x)\"/>\n".to_owned()));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("many.xml");
    std::fs::write(&file, text).unwrap();
    let imported = import(&file).unwrap();
    assert_eq!(imported.remarks.len(), many);
    assert_eq!(imported.remarks.last().unwrap().line, many + 1);
}

#[test]
fn every_example_of_our_own_file_gives_its_fields() {
    let document: FingerprintFile = toml::from_str(OWN).expect("the fixture is well-formed");
    let fingerprints = FingerprintSet::parse("fingerprints.toml", OWN).expect("the fixture is well-formed");
    for database in &document.database {
        let (count, mismatches) = verify(database, &fingerprints);
        assert!(count > 0, "{} has no examples", database.matches);
        assert_eq!(mismatches, []);
    }
}
