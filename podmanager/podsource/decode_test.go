package podsource

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// podWith returns a valid manifest with more lines in its spec and in its container.
func podWith(spec, container string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n" + indent("  ", spec) +
		"  containers:\n  - name: c\n    image: i:1\n" + indent("    ", container)
}

func indent(by, text string) string {
	if text == "" {
		return ""
	}
	return by + strings.ReplaceAll(text, "\n", "\n"+by) + "\n"
}

func decodeErr(t *testing.T, file, text string) string {
	t.Helper()
	manifests, problems := decodeFile(file, []byte(text), origin{source: podspec.SourceFile, node: "node1"})
	require.Empty(t, manifests)
	require.NotEmpty(t, problems)
	return problems[0].Error()
}

func TestDecodeFile_RejectsOtherContent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ file, text, want string }{
		"nothing":       {"f.yaml", "", "f.yaml: the file contains no manifest"},
		"only comments": {"f.yaml", "# one\n---\n#two\n", "f.yaml: the file contains no manifest"},
		"empty JSON":    {"f.json", " \n", "f.json: the file contains no manifest"},
		"text":          {"f.yaml", "hello", "f.yaml: document 1: must be an object of kind Pod, not a string"},
		"a list":        {"f.yaml", "- a", "f.yaml: document 1: must be an object of kind Pod, not a list"},
		"null":          {"f.yaml", "~", "f.yaml: document 1: must be an object of kind Pod, not null"},
		"not YAML":      {"f.yaml", "a: b: c", "f.yaml: document 1: not valid YAML: yaml: mapping values are not allowed in this context"},
		"not YAML, line of the file": {
			"f.yaml", "---\n" + podWith("", "") + "---\n# more\na:\n\t- b\n",
			"f.yaml: document 2: not valid YAML: yaml: line 12: found character that cannot start any token",
		},
		"binary":        {"f.yaml", "\x00\x01", "f.yaml: document 1: not valid YAML: yaml: control characters are not allowed"},
		"not JSON":      {"f.json", "{", "f.json: document 1: not valid JSON: unexpected end of JSON input"},
		"YAML as JSON":  {"f.json", "a: b", "f.json: document 1: not valid JSON: invalid character 'a' looking for beginning of value"},
		"two JSONs":     {"f.json", "{}{}", "f.json: document 1: not valid JSON: invalid character '{' after top-level value"},
		"empty object":  {"f.json", "{}", `f.json: document 1: apiVersion: Required value: must be "v1"; kind: Required value: must be "Pod"`},
		"a list of pod": {"f.yaml", "apiVersion: v1\nkind: PodList\nitems: []", `f.yaml: document 1: kind: Unsupported value: "PodList": supported values: "Pod"`},
		"a deployment":  {"f.yaml", "apiVersion: apps/v1\nkind: Deployment", `f.yaml: document 1: apiVersion: Unsupported value: "apps/v1": supported values: "v1"; kind: Unsupported value: "Deployment": supported values: "Pod"`},
		"odd kind":      {"f.yaml", "apiVersion: v1\nkind: [Pod]", `f.yaml: document 1: kind: Unsupported value: "[Pod]": supported values: "Pod"`},
		"key twice": {
			"f.yaml", podWith("", "image: i:2"),
			`f.yaml: document 1: not valid YAML: yaml: unmarshal errors: line 8: key "image" already set in map`,
		},
		"key twice in JSON": {
			"f.json", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i","image":"j"}]}}`,
			"f.json: document 1: spec.containers[0].image: Forbidden: duplicate field",
		},
		"too many": {"f.yaml", strings.Repeat("a\n---\n", 101), "f.yaml: the file has 101 documents, more than the limit of 100"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, decodeErr(t, c.file, c.text))
		})
	}
}

// [resource.ParseQuantity] needs minutes for some quantities.
func TestDecodeFile_RejectsHugeQuantitiesAtOnce(t *testing.T) {
	t.Parallel()
	const amount = "92E7000000000000000"
	for name, c := range map[string]struct{ file, text, want string }{
		"of a container":         {"f.yaml", podWith("", "resources: {limits: {memory: "+amount+"}}"), "spec.containers[0].resources.limits[memory]: Invalid value"},
		"of a pod":               {"f.yaml", podWith("overhead: {cpu: '1e-1000000000 '}", ""), "spec.overhead[cpu]: Invalid value"},
		"of a volume":            {"f.yaml", podWith(`volumes: [{name: v, emptyDir: {sizeLimit: "1E-1000000000"}}]`, ""), "spec.volumes[0].emptyDir.sizeLimit: Invalid value"},
		"in a field of no pod":   {"f.yaml", podWith("", "resources: {Limits: {memory: "+amount+"}}"), "spec.containers[0].resources.Limits: Forbidden: unknown field"},
		"a number of JSON":       {"f.json", `{"apiVersion":"v1","kind":"Pod","spec":{"overhead":{"cpu":1e-1000000000}}}`, "spec.overhead[cpu]: Invalid value"},
		"the same, in no field":  {"f.json", `{"apiVersion":"v1","kind":"Pod","spec":{"Overhead":{"cpu":1e-1000000000}}}`, "spec.Overhead: Forbidden: unknown field"},
		"in a field given twice": {"f.json", `{"apiVersion":"v1","kind":"Pod","spec":{"overhead":{"cpu":1},"overhead":{"cpu":"1e-1000000000"}}}`, "spec.overhead[cpu]: Invalid value"},
	} {
		require.Contains(t, decodeErr(t, c.file, c.text), c.want, name)
	}
}

func TestDecodeFile_AllErrorsOfAManifestAreOneError(t *testing.T) {
	t.Parallel()
	_, problems := decodeFile("f.yaml", []byte(podWith("restartPolicy: Nope\nnope: 1", "ports: [{containerPort: 0}]")), origin{source: podspec.SourceFile, node: "n"})
	require.Len(t, problems, 1)
	bad, ok := errors.AsType[*field.Error](problems[0])
	require.True(t, ok)
	require.Equal(t, "spec.nope", bad.Field)
	for _, want := range []string{"spec.nope", "spec.restartPolicy", "containerPort"} {
		require.ErrorContains(t, problems[0], want)
	}
}

func TestDecodeFile_ReportsEveryBadDocument(t *testing.T) {
	t.Parallel()
	manifests, problems := decodeFile("f.yaml", []byte("--- x\n---\n"+podWith("", "")+"---\n[]\n"), origin{source: podspec.SourceFile, node: "n"})
	require.Empty(t, manifests)
	require.Len(t, problems, 2)
	require.Equal(t, 1, problems[0].Document)
	require.Equal(t, 3, problems[1].Document)
}

func TestDecodeFile_LimitsTheErrorsOfAManifest(t *testing.T) {
	t.Parallel()
	var spec strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&spec, "x%d: 1\n", i)
	}
	got := decodeErr(t, "f.yaml", podWith(strings.TrimSpace(spec.String()), ""))
	require.Contains(t, got, "; and 950 more")
	require.Less(t, len(got), 5000)
}

func TestDecodeFile_ValidManifests(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"small":                  podWith("", ""),
		"with a byte order mark": "\ufeff" + podWith("", ""),
		"Windows line ends":      "---\r\n" + strings.ReplaceAll(podWith("", ""), "\n", "\r\n"),
		"behind its marker":      `--- {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: i}]}}`,
		"marker in a scalar":     podWith("", "args:\n- |\n  ---\n  a: b"),
		"with a status":          podWith("", "") + "status: {phase: Running, conditions: [{type: Ready, status: \"True\"}]}\n",
		"an amount that is none": podWith("", "env: [{name: A, value: 92E7000000000000000}]"),
		"anchors":                podWith("", "env: [{name: A, value: &v x}, {name: B, value: *v}]"),
		"host ports":             podWith("", "ports: [{containerPort: 1, hostPort: 80}, {containerPort: 1, hostPort: 80, protocol: UDP}]"),
		"short-lived host port":  podWith("initContainers: [{name: i, image: i, ports: [{containerPort: 80, hostPort: 80}]}]", "ports: [{containerPort: 80, hostPort: 80}]"),
		"policies of inits":      podWith("initContainers: [{name: i, image: i, restartPolicy: Never}, {name: j, image: j, restartPolicy: OnFailure}]", ""),
		"port of a sidecar":      podWith("initContainers: [{name: s, image: i, restartPolicy: Always, ports: [{containerPort: 1, hostPort: 80}]}]", "ports: [{containerPort: 2, hostPort: 80}]"),
		"port of an init":        podWith("hostNetwork: true\ninitContainers: [{name: i, image: i, ports: [{containerPort: 1, hostPort: 80}]}]", ""),
		"glusterfs of nothing":   podWith("volumes: [{name: v, glusterfs: {}}]", ""),
		"probed sidecar":         podWith("initContainers: [{name: i, image: i, restartPolicy: Always, startupProbe: {httpGet: {port: http}}}]", ""),
		"readiness threshold":    podWith("", "readinessProbe: {grpc: {port: 5}, successThreshold: 3}"),
		"rules":                  podWith("", "restartPolicy: Never\nrestartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]"),
		"hook":                   podWith("", "lifecycle: {preStop: {sleep: {seconds: 5}}, postStart: {httpGet: {port: 80}}}"),
		"number for quantity":    podWith("", "resources: {limits: {cpu: 1.5, memory: 1Gi}}"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			manifests, problems := decodeFile("f.yaml", []byte(text), origin{source: podspec.SourceFile, node: "n"})
			require.Empty(t, problems)
			require.Len(t, manifests, 1)
			require.Equal(t, "a-n", manifests[0].pod.Name)
			require.Equal(t, corev1.PodPending, manifests[0].pod.Status.Phase)
		})
	}
}

func TestDecodeFile_RejectsYAMLDirectives(t *testing.T) {
	t.Parallel()
	require.Contains(t, decodeErr(t, "f.yaml", "%YAML 1.1\n---\n"+podWith("", "")), "document 1: not valid YAML")
}

// With aliases, a few bytes of YAML could use all memory of the node.
func TestDecodeFile_RejectsLargeAliases(t *testing.T) {
	t.Parallel()
	const want = "not valid YAML: aliases add more than 1048576 bytes to the document"
	long := strings.Repeat("x", 100_000)
	for name, args := range map[string]string{
		"one text":     `args: [&v "` + long + `", ` + strings.Repeat("*v, ", 30) + `]`,
		"lists":        "args: [&v \"" + long[:1000] + "\", &w [" + strings.Repeat("*v, ", 40) + "], " + strings.Repeat("*w, ", 40) + "]",
		"keys":         `env: [{&v "` + long[:1000] + `": 1}, ` + strings.Repeat("{*v : 1}, ", 1500) + `]`,
		"merged":       `env: [&v {name: "` + long + `"}, ` + strings.Repeat("{<<: *v}, ", 30) + `]`,
		"bytes":        `args: [&v !!binary "` + long + `", ` + strings.Repeat("*v, ", 30) + `]`,
		"itself":       "args: [&v [*v]]",
		"many empties": "args: [&a [" + strings.Repeat("1, ", 1500) + "], " + strings.Repeat("*a, ", 1500) + "]",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := podWith("", args)
			require.Contains(t, decodeErr(t, "f.yaml", text), want)
			_, problems := decodeResponse("u", []byte(text), origin{source: podspec.SourceHTTP, node: "n"})
			require.Len(t, problems, 1)
			require.ErrorContains(t, problems[0], want)
		})
	}
	few := podWith("", `args: [&v "`+long+`", `+strings.Repeat("*v, ", 9)+`"*", "** a"]`)
	manifests, problems := decodeFile("f.yaml", []byte(few), origin{source: podspec.SourceFile, node: "n"})
	require.Empty(t, problems)
	require.Len(t, manifests[0].pod.Spec.Containers[0].Args, 12)
	_, problems = decodeFile("f.yaml", []byte(podWith("", "args: [*no]")), origin{source: podspec.SourceFile, node: "n"})
	require.ErrorContains(t, problems[0], "unknown anchor")
}
