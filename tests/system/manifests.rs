//! What is shipped for Kubernetes and for Vector: well-formed, whole, and of words that this program takes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use bannerwall_test_support::{json_lines, ssh_servers};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

fn shipped(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging").join(folder)
}

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

/// The documents of a YAML file; `None`, and said so, where nothing is installed that reads it.
fn documents(file: &Path) -> Option<Vec<Value>> {
    const READ: &str = "import sys, json, yaml\n\
                        print(json.dumps([one for one in yaml.safe_load_all(open(sys.argv[1])) if one]))";
    // Debian's, which has Debian's modules.
    let output = Command::new("/usr/bin/python3").args(["-c", READ]).arg(file).output().ok()?;
    if text(&output.stderr).contains("No module named 'yaml'") {
        eprintln!("skipped: python3-yaml is not installed");
        return None;
    }
    assert!(output.status.success(), "{}: {}", file.display(), text(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).expect("json writes it"))
}

fn manifest(name: &str) -> Option<Vec<Value>> {
    documents(&shipped("kubernetes").join(name))
}

fn words(value: &Value) -> Vec<String> {
    let words = value.as_array().expect("a list of words");
    words.iter().map(|word| word.as_str().expect("a word").to_owned()).collect()
}

/// Objects that run pods, with the template of these.
fn workloads(documents: &[Value]) -> Vec<(&Value, &Value)> {
    let runs = documents.iter().filter(|one| one["spec"]["template"].is_object());
    runs.map(|one| (one, &one["spec"]["template"])).collect()
}

fn names(values: &Value) -> BTreeSet<&str> {
    values.as_array().into_iter().flatten().filter_map(|value| value["name"].as_str()).collect()
}

#[test]
fn each_manifest_holds_together_and_takes_no_more_rights_than_it_needs() {
    let mut kinds = BTreeSet::new();
    for file in ["guard.yaml", "workers.yaml", "scan.yaml"] {
        let Some(documents) = manifest(file) else { return };
        let maps: BTreeSet<_> = documents
            .iter()
            .filter(|one| one["kind"] == "ConfigMap")
            .filter_map(|one| one["metadata"]["name"].as_str())
            .collect();
        for (object, template) in workloads(&documents) {
            kinds.insert(object["kind"].as_str().expect("a kind").to_owned());
            let selected = &object["spec"]["selector"]["matchLabels"];
            assert!(selected.is_null() || *selected == template["metadata"]["labels"], "{file}");
            let spec = &template["spec"];
            assert_eq!(spec["automountServiceAccountToken"], false, "{file}");
            for volume in spec["volumes"].as_array().into_iter().flatten() {
                let map = volume["configMap"]["name"].as_str();
                assert!(map.is_none_or(|map| maps.contains(map)), "{file}: {volume}");
            }
            for container in spec["containers"].as_array().expect("containers") {
                let version = concat!(":", env!("CARGO_PKG_VERSION"));
                assert!(container["image"].as_str().is_some_and(|image| image.ends_with(version)), "{file}");
                assert!(names(&container["volumeMounts"]).is_subset(&names(&spec["volumes"])), "{file}");
                for variable in container["env"].as_array().into_iter().flatten() {
                    let map = variable["valueFrom"]["configMapKeyRef"]["name"].as_str();
                    assert!(map.is_none_or(|map| maps.contains(map)), "{file}: {variable}");
                }
                let rights = &container["securityContext"];
                assert_eq!(rights["readOnlyRootFilesystem"], true, "{file}");
                assert_eq!(rights["allowPrivilegeEscalation"], false, "{file}");
                assert_eq!(rights["capabilities"]["drop"], serde_json::json!(["ALL"]), "{file}");
                let is_guard = object["kind"] == "DaemonSet";
                assert_eq!(rights["capabilities"]["add"].is_array(), is_guard, "{file}");
                assert_eq!(spec["securityContext"]["runAsNonRoot"] == true, !is_guard, "{file}");
            }
        }
    }
    assert_eq!(kinds, BTreeSet::from(["DaemonSet", "Deployment", "Job"].map(str::to_owned)));
}

#[test]
fn the_validators_of_kubernetes_take_each_manifest() {
    let files = ["guard.yaml", "workers.yaml", "scan.yaml"].map(|file| shipped("kubernetes").join(file));
    let validators: [(&str, &[&str]); 2] = [("kubectl-validate", &[]), ("kubeconform", &["-strict"])];
    let mut asked = 0;
    for (program, flags) in validators {
        let Ok(output) = Command::new(program).args(flags).args(&files).output() else { continue };
        let said = text(&output.stdout) + &text(&output.stderr);
        if said.contains("could not download schema") || said.contains("failed downloading schema") {
            eprintln!("skipped: {program} cannot reach the schemas");
            continue;
        }
        assert!(output.status.success(), "{program}: {said}");
        asked += 1;
    }
    if asked == 0 {
        eprintln!("skipped: neither kubectl-validate nor kubeconform is on PATH");
    }
}

#[test]
fn the_guard_takes_its_configuration() {
    let Some(documents) = manifest("guard.yaml") else { return };
    let map = documents.iter().find(|one| one["kind"] == "ConfigMap").expect("one");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("guard.toml");
    fs::write(&file, map["data"]["guard.toml"].as_str().expect("a file")).expect("the folder is ours");
    let [(_, template)] = workloads(&documents)[..] else { panic!("one workload") };
    let container = &template["spec"]["containers"][0];
    let mounted = container["volumeMounts"][0]["mountPath"].as_str().expect("a path");
    let args = words(&container["args"]);
    assert_eq!(args[..2], ["guard", "--config"]);
    assert_eq!(args[2], mounted);
    let check = |name: &Path| {
        let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("rules");
        let words = ["guard", "--check", "--no-local", "--config"];
        Command::new(PROGRAM).args(words).arg(name).arg("--rules").arg(rules).output().expect("it runs")
    };
    let checked = check(&file);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stderr));
    let metrics = container["ports"][0]["containerPort"].to_string();
    assert!(map.to_string().contains(&format!("127.0.0.1:{metrics}")), "probes ask where it shows them");
    fs::write(&file, "[guard]\nhooks = []\n").expect("the folder is ours");
    assert_eq!(check(&file).status.code(), Some(2), "what it does not know is refused");
}

#[test]
fn a_worker_takes_its_words() {
    let Some(documents) = manifest("workers.yaml") else { return };
    let [(_, template)] = workloads(&documents)[..] else { panic!("one workload") };
    let args = words(&template["spec"]["containers"][0]["args"]);
    let nobody = "postgresql://worker@127.0.0.1:1/net";
    let filled = args.iter().map(|word| word.replace("$(DATABASE)", nobody).replace("$(POD)", "pod-1"));
    let output = Command::new(PROGRAM).args(filled).output().expect("it runs");
    // It is the server that is missing.
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("127.0.0.1:1/net"), "{said}");
    assert!(!said.contains("Usage"), "{said}");
}

/// A part of the scan, of some addresses of this machine instead of those that are written there.
fn part(script: &str, index: usize, port: u16) -> Output {
    let script = script.replace("192.0.2.0/24", &format!("127.40.0.0/28 -p {port}"));
    let folder = Path::new(PROGRAM).parent().expect("it lies in a folder");
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    Command::new("/bin/sh")
        .args(["-c", &script])
        .env("PATH", path)
        .env("JOB_COMPLETION_INDEX", index.to_string())
        .output()
        .expect("sh starts")
}

#[test]
fn the_parts_of_a_scan_are_the_whole_and_each_address_is_in_one() {
    let Some(documents) = manifest("scan.yaml") else { return };
    let [(job, template)] = workloads(&documents)[..] else { panic!("one workload") };
    let container = &template["spec"]["containers"][0];
    assert_eq!(words(&container["command"]), ["/bin/sh", "-c"]);
    let [script] = &words(&container["args"])[..] else { panic!("one script") };
    let parts = job["spec"]["completions"].as_u64().expect("a number");
    let port = ssh_servers(|_| b"SSH-2.0-test\r\n".to_vec());
    let mut seen = Vec::new();
    for index in 0..usize::try_from(parts).expect("a small number") {
        let output = part(script, index, port);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let found = json_lines(&output.stdout);
        let addresses = found.iter().filter(|event| event["event_type"] == "ssh");
        seen.extend(addresses.map(|event| event["dest_ip"].as_str().expect("an address").to_owned()));
    }
    assert_eq!(seen.len(), 16, "{seen:?}");
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 16, "{seen:?}");
    assert_ne!(part(script, 4, port).status.code(), Some(0), "there is no fifth part");
}

#[test]
fn vector_reads_events_as_they_are_written() {
    let file = shipped("vector/vector.yaml");
    let Some(documents) = documents(&file) else { return };
    let config = &documents[0];
    let known: BTreeSet<String> = ["sources", "transforms"]
        .iter()
        .flat_map(|kind| config[*kind].as_object().expect("a table").keys().cloned())
        .collect();
    for kind in ["transforms", "sinks"] {
        for (name, piece) in config[kind].as_object().expect("a table") {
            for input in words(&piece["inputs"]) {
                let from = input.split('.').next().expect("a name");
                assert!(known.contains(from), "{name} takes {input}");
            }
        }
    }
    let validate = ["validate", "--no-environment"];
    match Command::new("vector").args(validate).arg(&file).output() {
        Ok(output) => assert!(output.status.success(), "{}", text(&output.stdout) + &text(&output.stderr)),
        Err(_) => eprintln!("skipped: vector is not on PATH"),
    }
    reads_events(config["transforms"]["parsed"]["source"].as_str().expect("a program"));
}

/// Has the language's own interpreter (`vrl`, of the crate of that name) run `program` over an event of ours
/// and over what is none.
fn reads_events(program: &str) {
    let port = ssh_servers(|_| b"SSH-2.0-test\r\n".to_vec());
    let words = ["scan", "ssh", "127.40.1.1", "--progress", "never", "--format", "json", "-p"];
    let output = Command::new(PROGRAM).args(words).arg(port.to_string()).output().expect("it runs");
    let line = text(&output.stdout).lines().next().expect("an event").to_owned();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let run = |message: &str| {
        let (input, source) = (folder.path().join("input"), folder.path().join("program"));
        let event = serde_json::json!({"message": message, "host": "gateway"});
        fs::write(&input, event.to_string()).expect("the folder is ours");
        fs::write(&source, program).expect("the folder is ours");
        let mut vrl = Command::new("vrl");
        vrl.arg("--input").arg(input).arg("--program").arg(source).arg("--print-object").output().ok()
    };
    let Some(taken) = run(&line) else { return eprintln!("skipped: vrl is not on PATH") };
    let shown = text(&taken.stdout) + &text(&taken.stderr);
    assert!(shown.contains("gateway") && shown.contains("SSH-2.0-test"), "{shown}");
    assert!(!shown.contains("error"), "{shown}");
    for line in ["{\"event_type\": 7}", "not JSON", "[]"] {
        let refused = run(line).expect("it ran before");
        let shown = text(&refused.stdout) + &text(&refused.stderr);
        assert!(shown.contains("error") || shown.contains("abort"), "{line}: {shown}");
    }
}
