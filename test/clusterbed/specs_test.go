//go:build cluster

package clusterbed_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// spec is one of Kubernetes' own specs.
type spec struct {
	name    string
	seconds float64 // the time with the kubelet as the node
}

// TestSpecs runs Kubernetes' own specs for nodes, with the unchanged program e2e.test. The variable
// KPCLUSTER_SPECS selects the specs: empty for those that take the kubelet at most ten seconds, "all"
// for all, otherwise a regular expression for their names. Specs have time limits of their own, which a
// busy machine may exceed. Therefore, if at most three specs fail, the test runs these once more, one
// at a time, and logs both results. A spec that fails twice fails the test.
func TestSpecs(t *testing.T) {
	specs, err := readSpecs("testdata/specs.txt")
	require.NoError(t, err)
	atATime := 8 // a spec mostly waits
	switch selected := os.Getenv("KPCLUSTER_SPECS"); selected {
	case "all":
	case "":
		specs = slices.DeleteFunc(specs, func(s spec) bool { return s.seconds > 10 })
		atATime = 4 // short specs wait less
	default:
		match, err := regexp.Compile(selected)
		require.NoError(t, err)
		specs = slices.DeleteFunc(specs, func(s spec) bool { return !match.MatchString(s.name) })
	}
	require.NotEmpty(t, specs)
	require.NoError(t, script("./specs.sh"))

	results := filepath.Join(bed.env["KPCLUSTER_DIR"], "specs")
	require.NoError(t, os.RemoveAll(results))
	began := time.Now()
	failures, runErr := runSpecs(t, results, specs, atATime)
	took := time.Since(began)
	t.Logf("%d of %d specs passed in %.0f s", len(specs)-len(failures), len(specs), took.Seconds())
	if os.Getenv("KPCLUSTER_SPECS") == "all" {
		require.NoError(t, record(len(specs)-len(failures), len(specs), took))
	}
	if n := len(failures); n > 0 && n <= 3 {
		specs = slices.DeleteFunc(specs, func(s spec) bool { return failures[s.name] == "" })
		for name, reason := range failures {
			t.Logf("failed at the first attempt: %s\n%s", name, reason)
		}
		results = filepath.Join(results, "again")
		failures, runErr = runSpecs(t, results, specs, 1)
		for _, s := range specs {
			if failures[s.name] == "" {
				t.Log("passed at the second attempt: " + s.name)
			}
		}
	}
	require.Empty(t, failures, "the output is in %s", results)
	require.NoError(t, runErr)
}

// runsFile is the table of runs that docs/how-we-know.md includes.
const runsFile = "testdata/runs.md"

// record appends a row about a run to the table of runs.
func record(passed, specs int, took time.Duration) error {
	commit, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return fmt.Errorf("git rev-parse: %w", err)
	}
	changes, err := exec.Command("git", "status", "--porcelain", "--", ":/", ":(exclude)"+runsFile).Output()
	if err != nil {
		return fmt.Errorf("git status: %w", err)
	}
	version := strings.TrimSpace(string(commit))
	if len(changes) > 0 {
		version += " with changes"
	}
	f, err := os.OpenFile(runsFile, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintf(f, "| %s | %s | %s | %s | %d of %d | %.0f min |\n",
		cmp.Or(os.Getenv("KPCLUSTER_NODE"), "cluster-agent"), time.Now().Format(time.DateOnly), version, machine(), passed, specs, took.Minutes())
	return err
}

// machine describes the machine.
func machine() string {
	model := "unknown CPU"
	if data, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if _, rest, found := strings.Cut(string(data), "model name\t: "); found {
			model, _, _ = strings.Cut(rest, "\n")
		}
	}
	return fmt.Sprintf("%d CPUs, %s", runtime.NumCPU(), model)
}

// readSpecs reads a list of specs: a line for each spec, with seconds, a tab and its name. Lines with #
// are comments.
func readSpecs(file string) ([]spec, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var specs []spec
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		seconds, name, _ := strings.Cut(strings.TrimSpace(line), "\t")
		n, err := strconv.ParseFloat(seconds, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		specs = append(specs, spec{name: name, seconds: n})
	}
	return specs, nil
}

// runSpecs runs specs, and writes report.json and run.log to a new folder. It returns the failures as
// failedSpecs does, and the error of ginkgo.
func runSpecs(t *testing.T, folder string, specs []spec, atATime int) (failures map[string]string, runErr error) {
	t.Helper()
	require.NoError(t, os.MkdirAll(folder, 0o700))
	dir := bed.env["KPCLUSTER_DIR"]
	names := make([]string, len(specs))
	for i, s := range specs {
		names[i] = regexp.QuoteMeta(s.name)
	}
	log, err := os.Create(filepath.Join(folder, "run.log"))
	require.NoError(t, err)
	defer log.Close()
	c := exec.Command(bed.env["RUN_INSIDE"], "ginkgo", "--no-color", fmt.Sprintf("--procs=%d", atATime), "--timeout=3h", "--poll-progress-after=10m", "--keep-going",
		"--json-report=report.json", "--output-dir="+folder, "--focus=("+strings.Join(names, "|")+")$", filepath.Join(bed.env["PROGRAMS"], "e2e.test"), "--",
		"--kubeconfig="+filepath.Join(dir, "admin.kubeconfig"), "--provider=skeleton", "--num-nodes=1", "--allowed-not-ready-nodes=0", "--node-os-distro=debian",
		"--kubectl-path="+filepath.Join(bed.env["PROGRAMS"], "kubectl"), "--kubelet-root-dir="+filepath.Join(dir, "root"),
		"--container-runtime-endpoint=unix://"+bed.env["CRI_SOCKET"], "--dump-logs-on-failure=true", "--dns-domain=cluster.local", "--e2e-output-dir="+folder)
	c.Dir, c.Stdout, c.Stderr = folder, log, log
	runErr = c.Run()
	failures, err = failedSpecs(filepath.Join(folder, "report.json"), specs)
	require.NoError(t, err, "%v; the output is in %s", runErr, folder)
	return failures, runErr
}

// failedSpecs returns the names of the specs that did not pass according to a report of ginkgo, with the
// reason. A spec that is missing in the report did not pass.
func failedSpecs(report string, specs []spec) (map[string]string, error) {
	data, err := os.ReadFile(report)
	if err != nil {
		return nil, err
	}
	var suites []struct {
		SpecReports []struct {
			ContainerHierarchyTexts []string
			LeafNodeText, State     string
			Failure                 struct{ Message string }
		}
	}
	if err := json.Unmarshal(data, &suites); err != nil {
		return nil, fmt.Errorf("%s: %w", report, err)
	}
	failures := map[string]string{}
	for _, s := range specs {
		failures[s.name] = "not in the report"
	}
	for _, suite := range suites {
		for _, r := range suite.SpecReports {
			name := strings.Join(append(r.ContainerHierarchyTexts, r.LeafNodeText), " ")
			switch _, selected := failures[name]; {
			case !selected:
			case r.State == "passed":
				delete(failures, name)
			default:
				failures[name] = r.State + ": " + r.Failure.Message
			}
		}
	}
	return failures, nil
}
