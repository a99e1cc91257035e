package config

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/apis/config/scheme"
	"k8s.io/kubernetes/pkg/kubelet/apis/config/validation"
	"k8s.io/kubernetes/pkg/kubelet/eviction"
	evictionapi "k8s.io/kubernetes/pkg/kubelet/eviction/api"
	"k8s.io/kubernetes/pkg/kubelet/kubeletconfig/configfiles"
	utilfs "k8s.io/kubernetes/pkg/util/filesystem"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// kubelet plays the kubelet's side: it reads configurations with the kubelet's code.
type kubelet struct {
	scheme *runtime.Scheme
	loader configfiles.Loader
	fields []string // field names of a KubeletConfiguration, longest first
	file   string   // the file that both sides read
}

func newKubelet(t *testing.T) *kubelet {
	t.Helper()
	s, _, err := scheme.NewSchemeAndCodecs(serializer.EnableStrict)
	require.NoError(t, err)
	k := &kubelet{scheme: s, file: filepath.Join(t.TempDir(), "kubelet.yaml")}
	k.loader, err = configfiles.NewFsLoader(&utilfs.DefaultFs{}, k.file)
	require.NoError(t, err)
	for name := range fieldTypes() {
		k.fields = append(k.fields, name)
	}
	slices.SortFunc(k.fields, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	return k
}

func (k *kubelet) play(t *testing.T, w *world) []judge.Facts {
	t.Helper()
	f := judge.Facts{}
	w.dir = filepath.Dir(k.file)
	require.NoError(t, os.WriteFile(k.file, []byte(w.text()), 0o600))
	internal, err := k.loader.Load(t.Context())
	if err != nil {
		f["decode"] = "refused"
		return []judge.Facts{f}
	}
	defaultEviction(internal)
	require.NoError(t, k.scheme.Convert(internal, &w.accepted, nil))
	for field, cannot := range cannotWork(w) {
		if cannot() {
			f["refused "+field] = "later"
		}
	}
	for _, l := range append(slices.Clone(w.Lines), line{}) {
		if notStrict(w, l.Name) {
			f["strict "+l.Name] = "logged"
		}
	}
	refused := false
	thresholds, err := eviction.ParseThresholdConfig(internal.EnforceNodeAllocatable, internal.EvictionHard, internal.EvictionSoft,
		internal.EvictionSoftGracePeriod, internal.EvictionMinimumReclaim)
	if err != nil {
		f["refused eviction"] = "yes"
		refused = true
	}
	if err := validation.ValidateKubeletConfiguration(internal, utilfeature.DefaultFeatureGate); err != nil {
		all := []error{err}
		if many, ok := errors.AsType[utilerrors.Aggregate](err); ok {
			all = many.Errors()
		}
		for _, err := range all {
			if strings.Contains(err.Error(), "cgroup v1") {
				continue // depends on the machine
			}
			f["refused "+k.fieldOf(err.Error())] = "yes"
			refused = true
		}
	}
	if refused {
		return []judge.Facts{f}
	}
	addValues(t, f, w.accepted)
	addIgnored(f, w)
	for _, t := range thresholds {
		f["threshold "+string(t.Signal)+" "+t.GracePeriod.String()] = amountOf(t.Value) + reclaimOf(t.MinReclaim)
	}
	return []judge.Facts{f}
}

// addIgnored adds the fields that the file sets and our package does not support. It also
// adds the default thresholds that do not apply because the file sets evictionHard without
// them.
func addIgnored(f judge.Facts, w *world) {
	for _, l := range w.Lines {
		if fieldTypes()[l.Name] != nil && !isOurs(l.Name) && l.Value != "null" && l.Value != "~" {
			f["ignored "+l.Name] = "read"
		}
	}
	value, set := w.value("evictionHard")
	if !set || value == "null" || value == "~" || len(w.accepted.EvictionHard) == 0 {
		return
	}
	var lost []string
	for signal := range eviction.DefaultEvictionHard {
		if w.accepted.EvictionHard[signal] == "" {
			lost = append(lost, signal)
		}
	}
	slices.Sort(lost)
	f["lost evictionHard"] = strings.Join(lost, ", ")
}

// amountOf returns a threshold value in the notation of a configuration file.
func amountOf(v evictionapi.ThresholdValue) string {
	if v.Quantity != nil {
		return v.Quantity.String()
	}
	return strconv.FormatFloat(float64(v.Percentage*100), 'g', 6, 32) + "%"
}

func reclaimOf(v *evictionapi.ThresholdValue) string {
	if v == nil {
		return ""
	}
	return " and " + amountOf(*v)
}

// defaultEviction adds the default thresholds, as the program cmd/kubelet does after it has
// read its file.
func defaultEviction(c *kubeletconfig.KubeletConfiguration) {
	if c.EvictionHard == nil {
		c.EvictionHard = maps.Clone(eviction.DefaultEvictionHard)
	} else if c.MergeDefaultEvictionSettings {
		for signal, value := range eviction.DefaultEvictionHard {
			if _, ok := c.EvictionHard[signal]; !ok {
				c.EvictionHard[signal] = value
			}
		}
	}
}

// fieldOf returns the first field name in an error message.
func (k *kubelet) fieldOf(message string) string {
	text := strings.ToLower(message)
	for _, flag := range regexp.MustCompile(`\(--[^)]*\)`).FindAllString(text, -1) {
		text = strings.ReplaceAll(text, flag, "")
	}
	best, at := "", len(text)
	for _, name := range k.fields {
		if i := strings.Index(text, strings.ToLower(name)); i >= 0 && i < at {
			best, at = name, i
		}
	}
	switch {
	case best == "" && strings.Contains(text, "pod logs path"):
		return "podLogsDir"
	case best == "" && strings.Contains(text, "taint"):
		return "registerWithTaints"
	case best == "" && strings.Contains(text, "reserved memory"), strings.Contains(text, "reserved-memory"):
		return "reservedMemory"
	case best == "":
		return message
	}
	return best
}

// addValues adds the value of each field that our package supports. The zero values of all
// types are recorded as an empty string.
func addValues(t *testing.T, f judge.Facts, settings any) {
	t.Helper()
	data, err := json.Marshal(settings)
	require.NoError(t, err)
	var values map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(data, &values))
	for name := range ourTypes() {
		switch value := string(values[name]); value {
		case "null", "{}", "[]", `""`, "0", "false", `"0s"`:
		default:
			f["value "+name] = value
		}
	}
}
