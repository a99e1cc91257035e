package kubeletconfig

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	sigsyaml "sigs.k8s.io/yaml"
)

// theirs is a field of the kubelet's type.
type theirs struct{ typ, documented string }

// kubeletFields reads the kubelet's type from its source.
func kubeletFields(t *testing.T) map[string]theirs {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubelet").Output()
	require.NoError(t, err)
	file, err := parser.ParseFile(token.NewFileSet(),
		filepath.Join(strings.TrimSpace(string(dir)), "config", "v1beta1", "types.go"), nil, parser.ParseComments)
	require.NoError(t, err)
	fields := map[string]theirs{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || spec.Name.Name != Kind {
			return true
		}
		for _, f := range spec.Type.(*ast.StructType).Fields.List {
			if len(f.Names) == 0 {
				continue // TypeMeta
			}
			name, _, _ := strings.Cut(reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json"), ",")
			fields[name] = theirs{typeText(f.Type), documentedDefault(f.Doc.Text())}
		}
		return false
	})
	require.Greater(t, len(fields), 100)
	return fields
}

func typeText(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeText(e.X)
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.ArrayType:
		return "[]" + typeText(e.Elt)
	case *ast.MapType:
		return "map[" + typeText(e.Key) + "]" + typeText(e.Value)
	}
	return fmt.Sprint(e)
}

var (
	defaultLine  = regexp.MustCompile(`(?m)^Default: (.*)$`)
	defaultLines = regexp.MustCompile(`(?ms)^Default:\n((?:  .*?\n)+)`)
)

// documentedDefault returns the default in a comment, as YAML.
func documentedDefault(doc string) string {
	if m := defaultLine.FindStringSubmatch(doc); m != nil {
		return m[1]
	}
	if m := defaultLines.FindStringSubmatch(doc + "\n"); m != nil {
		return m[1]
	}
	return ""
}

// TestParse_KnowsEveryKubeletField checks that each field of the kubelet has exactly one kind
// in this package, and that no other field has a kind.
func TestParse_KnowsEveryKubeletField(t *testing.T) {
	t.Parallel()
	kubelet := kubeletFields(t)
	ours := map[string]string{}
	s := Default()
	for _, f := range s.fields() {
		require.NotContains(t, ours, f.name)
		ours[f.name] = "implemented"
	}
	for kind, names := range map[string]map[string]string{"ignored": ignored(), "refused": refused()} {
		for name, why := range names {
			require.NotContains(t, ours, name, kind)
			require.NotEmpty(t, why)
			ours[name] = kind
		}
	}
	kubelet["defaultPodSysctls"] = kubelet["allowedUnsafeSysctls"] // since v1.37
	for name := range kubelet {
		require.Contains(t, ours, name)
		delete(ours, name)
	}
	require.Equal(t, map[string]string{"apiVersion": "implemented", "kind": "implemented"}, ours)
}

func TestSettings_TypesAreTheKubelets(t *testing.T) {
	t.Parallel()
	kubelet := kubeletFields(t)
	s := Default()
	typ := reflect.TypeOf(s)
	names := map[string]string{}
	for f := range typ.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names[name] = f.Name
	}
	for _, f := range s.fields()[2:] {
		got := reflect.TypeOf(f.into).Elem()
		for got.Kind() == reflect.Pointer {
			got = got.Elem()
		}
		text := strings.NewReplacer("kubeletconfig.", "", "v1.", "").Replace(got.String())
		want := strings.ReplaceAll(kubelet[f.name].typ, "ImagePullCredentialsVerificationPolicy", "string")
		require.Equal(t, want, text, f.name)
		require.NotEmpty(t, names[f.name], f.name)
		require.Same(t, f.into, reflect.ValueOf(&s).Elem().FieldByName(names[f.name]).Addr().Interface(), f.name)
		delete(names, f.name)
	}
	require.Equal(t, map[string]string{"": "ClusterSettings"}, names) // embedded, as TypeMeta
}

// TestDefault_IsDocumented compares the defaults, except for those that the package documents
// as different.
func TestDefault_IsDocumented(t *testing.T) {
	t.Parallel()
	differ := map[string]string{
		"address": "127.0.0.1", "port": "10255", "podLogsDir": "", "cgroupsPerQOS": "false", "enableProfilingHandler": "false",
		"readOnlyPort": "0", "healthzPort": "0",
		"authentication": "{webhook: {enabled: false, cacheTTL: 2m}}", "authorization": "{mode: AlwaysAllow, webhook: {cacheAuthorizedTTL: 5m, cacheUnauthorizedTTL: 30s}}",
		// Defaults that the comment omits, or describes in another form.
		"imagePullCredentialsVerificationPolicy": "NeverVerifyPreloadedImages", "containerRuntimeEndpoint": "embedded",
		"cgroupRoot": "", "crashLoopBackOff": "maxContainerRestartPeriod: null", "singleProcessOOMKill": "null",
		"imageMaximumGCAge": "0s", "preloadedImagesVerificationAllowlist": "null",
		// The comment omits imagefs.inodesFree (kubernetes#121834).
		"evictionHard": "{memory.available: 100Mi, nodefs.available: 10%, nodefs.inodesFree: 5%, imagefs.available: 15%, imagefs.inodesFree: 5%}",
	}
	if runtime.GOOS != "linux" {
		delete(differ, "evictionHard")
	}
	kubelet, s := kubeletFields(t), Default()
	for _, f := range s.fields()[2:] {
		if f.name == "evictionHard" && runtime.GOOS != "linux" {
			continue
		}
		want, ok := differ[f.name]
		if !ok {
			want = kubelet[f.name].documented
			require.NotEmpty(t, want, "%s: the kubelet documents no default", f.name)
		}
		got, err := sigsyaml.Marshal(f.into)
		require.NoError(t, err)
		require.Equal(t, normal(t, want, f.into), normal(t, string(got), f.into), f.name)
	}
}

// normal parses text as a value of into's type and formats it. nil and an empty text are
// equal.
func normal(t *testing.T, text string, into any) string {
	t.Helper()
	if text == "nil" || text == "[]" || text == "{}\n" || text == "[]\n" {
		text = "null"
	}
	v := reflect.New(reflect.TypeOf(into).Elem())
	require.NoError(t, sigsyaml.Unmarshal([]byte(text), v.Interface()), text)
	out, err := sigsyaml.Marshal(v.Interface())
	require.NoError(t, err)
	return string(out)
}

// badValues returns one invalid value of the right type for each field that can have one.
func badValues() map[string]string {
	return map[string]string{
		"apiVersion": "v1", "kind": "Pod",
		"staticPodURL": "ftp://example.com/", "staticPodURLHeader": `{"a b": [c]}`,
		"syncFrequency": "-1s", "fileCheckFrequency": "-1s", "httpCheckFrequency": "-1s",
		"enableServer": "false", "address": "localhost", "port": "65536", "tlsCertFile": "/c", "tlsPrivateKeyFile": "/k",
		"readOnlyPort": "-1", "healthzBindAddress": "localhost", "healthzPort": "65536",
		"tlsCipherSuites": "[TLS_X]", "tlsCurvePreferences": "[1]", "tlsMinVersion": "VersionTLS14",
		"authentication": "{webhook: {cacheTTL: -1s}}", "authorization": "{mode: Sometimes}",
		"containerRuntimeEndpoint": "tcp://x", "crashLoopBackOff": "{maxContainerRestartPeriod: 1h}",
		"allowedUnsafeSysctls": `[""]`, "clusterDNS": "[dns]", "clusterDomain": `"a\nnameserver 6.6.6.6"`,
		"maxPods": "-1", "podsPerCore": "-1", "systemReserved": "{cpu: x}", "kubeReserved": "{gpu: \"1\"}", "enforceNodeAllocatable": "[x]",
		"cgroupRoot": "x", "cgroupDriver": "x", "podPidsLimit": "-2", "cpuCFSQuotaPeriod": "1h",
		"maxParallelImagePulls": "0", "registryPullQPS": "-1", "registryBurst": "-1",
		"imagePullCredentialsVerificationPolicy": "x", "preloadedImagesVerificationAllowlist": "[x]",
		"evictionHard": "{x: 5%}", "evictionSoft": "{memory.available: 1Gi}", "evictionSoftGracePeriod": "{memory.available: x}",
		"evictionMinimumReclaim": "{memory.available: x}", "evictionPressureTransitionPeriod": "-1s", "volumeStatsAggPeriod": "-1s",
		"imageGCHighThresholdPercent": "101", "imageGCLowThresholdPercent": "-1", "imageMinimumGCAge": "-1s", "imageMaximumGCAge": "-1s",
		"podLogsDir": "x", "containerLogMaxSize": "x", "containerLogMaxFiles": "1", "containerLogMaxWorkers": "0", "containerLogMonitorInterval": "1s",
		"shutdownGracePeriod": "1ms", "shutdownGracePeriodCriticalPods": "1s", "shutdownGracePeriodByPodPriority": "[{shutdownGracePeriodSeconds: -1}]",
	}
}

// anyValue returns, for fields that are not booleans, the reason for which all values are
// valid.
func anyValue() map[string]string {
	return map[string]string{
		"staticPodPath": "a folder may come later", "resolvConf": "the agent reads the file for each pod, and reports an error then",
		"evictionMaxPodGracePeriod": "a negative one is the pod's own",
	}
}

// TestParse_FieldsRefuseInvalidValues fails for a new field without an entry in badValues or
// anyValue.
func TestParse_FieldsRefuseInvalidValues(t *testing.T) {
	t.Parallel()
	s, bad, free := Default(), badValues(), anyValue()
	for _, f := range s.fields() {
		head := "apiVersion: " + APIVersion + "\nkind: " + Kind + "\n"
		if f.name == "apiVersion" || f.name == "kind" {
			head = strings.ReplaceAll(head, f.name+": ", "#")
		}
		_, err := Parse([]byte(head + f.name + ": [[{}]]\n"))
		require.ErrorContains(t, err, "line 3: "+f.name, "a value of the wrong type must be rejected")
		if value := bad[f.name]; value != "" {
			_, err := Parse([]byte(head + f.name + ": " + value + "\n"))
			require.ErrorContains(t, err, "line 3: "+f.name+": ", value)
			delete(bad, f.name)
			continue
		}
		kind := fmt.Sprintf("%T", f.into)
		require.True(t, strings.HasSuffix(kind, "*bool") || free[f.name] != "", "%s: add a bad value, or a reason for which all values are valid", f.name)
		delete(free, f.name)
	}
	require.Empty(t, bad)
	require.Empty(t, free)
}
