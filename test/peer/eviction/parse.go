package eviction

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/component-base/cli/flag"
	kubelet "k8s.io/kubernetes/pkg/kubelet/eviction"
	kubeletapi "k8s.io/kubernetes/pkg/kubelet/eviction/api"

	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A settingsWorld is a configuration of thresholds, valid or invalid, and flags.
type settingsWorld struct {
	Hard, Soft, Grace, Reclaim map[string]string
	Enforce                    []string
	Merge                      bool
	GOOS                       string
	Flags                      [2]string       // a flag of thresholds and a flag of settings
	Policy                     eviction.Policy `json:"-"`
	Pressed                    bool
}

// The fields of settings.
const (
	hardField    = "evictionHard"
	softField    = "evictionSoft"
	graceField   = "evictionSoftGracePeriod"
	reclaimField = "evictionMinimumReclaim"
)

func (w *settingsWorld) String() string {
	text, err := json.MarshalIndent(w, "", " ")
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// newSettings draws a configuration.
func newSettings(d *judge.Draw) *settingsWorld {
	w := &settingsWorld{
		Enforce: judge.Pick(d, nil, []string{}, []string{"pods"}, []string{"system-reserved", "pods"}, []string{"kube-reserved"}),
		Merge:   d.Chance(40), GOOS: judge.Pick(d, "", "linux", "windows", "plan9"),
	}
	broken := judge.Pick(d, 0, 0, 4, 20) // percentage of invalid amounts
	if d.Chance(85) {
		w.Hard = drawAmounts(d, 40, broken)
	}
	if d.Chance(50) {
		w.Soft = drawAmounts(d, 30, broken)
		w.Grace = map[string]string{}
		for _, key := range slices.Sorted(maps.Keys(w.Soft)) {
			if !d.Chance(broken) {
				w.Grace[key] = drawGrace(d, broken)
			}
		}
	}
	if d.Chance(broken) {
		w.Grace = map[string]string{judge.Pick(d, "memory.available", "pid.available", "x"): drawGrace(d, broken)}
	}
	if d.Chance(40) {
		w.Reclaim = drawAmounts(d, 25, broken)
		if d.Chance(20) {
			w.Reclaim["nodefs.available"] = judge.Pick(d, "85%", "90%", "70%", "80%", "95%", "99%")
		}
	}
	pair := func(separator string) string {
		key, value := judge.Pick(d, "memory.available", " nodefs.available", "a", ""), judge.Pick(d, "100Mi", "10% ", "", "1<2", "a=b")
		return judge.Pick(d, key+separator+value, key+separator+value, key+separator+value, "", "x", " ")
	}
	for i, separator := range []string{"<", "="} {
		var parts []string
		for range d.Int(4) {
			parts = append(parts, pair(separator))
		}
		w.Flags[i] = strings.Join(parts, ",")
	}
	w.Policy, w.Pressed = drawPolicy(d), d.Chance(50)
	return w
}

func signalNames() []string {
	return []string{
		"memory.available", "allocatableMemory.available", "pid.available", "nodefs.available", "nodefs.inodesFree",
		"imagefs.available", "imagefs.inodesFree", "containerfs.available", "containerfs.inodesFree",
	}
}

// drawAmounts draws a map of amounts for a percentage of all signals.
func drawAmounts(d *judge.Draw, percent, broken int) map[string]string {
	all := map[string]string{}
	for _, key := range signalNames() {
		rare := strings.HasPrefix(key, "containerfs.") || strings.HasPrefix(key, "allocatable")
		if d.Chance(percent) && (!rare || d.Chance(25)) {
			all[key] = drawAmount(d, broken)
		}
	}
	if d.Chance(broken) {
		all[judge.Pick(d, "memory.free", "", "Memory.available")] = drawAmount(d, broken)
	}
	return all
}

func drawAmount(d *judge.Draw, broken int) string {
	if d.Chance(broken) {
		return judge.Pick(d, "-1Mi", "-5%", "101%", "x%", "x", "", "%", "0", "0.0", "-0.5", "1.5", "1500m", "0.5", "NaN%", "Inf%", "100.0%", "0.0%", "-0%",
			"10%%", "1e1%", "+5%", "1 %", "99.99%", "1e100", "1e-100", "1e99", "1e-99", "9223372036854775807", "9223372036854775808", "1e400%", "1_0%",
			" 5%", "1Ei", "8Ei", "3E", "100%%", "200%", "0.000001%", "1"+strings.Repeat("0", 200))
	}
	if d.Chance(50) {
		return strconv.FormatFloat(float64(d.Between(0, 200))/2, 'f', -1, 64) + "%"
	}
	return judge.Pick(d, "100Mi", "1Gi", "0.5Gi", "1024Mi", "1048576", "1e9", "1G", "500k", "1", "2", "1Ki")
}

func drawGrace(d *judge.Draw, broken int) string {
	if d.Chance(broken) {
		return judge.Pick(d, "0s", "0", "-1s", "x", "", "1", "1d", "1ns", "-0s")
	}
	return judge.Pick(d, "30s", "1m30s", "1.5h")
}

// fields returns all maps by the name of their field.
func (w *settingsWorld) fields() map[string]map[string]string {
	return map[string]map[string]string{hardField: w.hard(), softField: w.Soft, graceField: w.Grace, reclaimField: w.Reclaim}
}

// hard returns the hard thresholds with the defaults that cmd/kubelet adds. On systems other
// than Linux, the defaults are taken from the kubelet's source.
func (w *settingsWorld) hard() map[string]string {
	defaults := maps.Clone(kubelet.DefaultEvictionHard)
	if w.GOOS != "" && w.GOOS != "linux" {
		delete(defaults, "nodefs.inodesFree")
		delete(defaults, "imagefs.inodesFree")
	}
	if w.GOOS == "windows" {
		defaults["memory.available"] = "500Mi"
	}
	if w.Hard == nil {
		return defaults
	}
	all := maps.Clone(w.Hard)
	for key, value := range defaults {
		if _, ok := all[key]; w.Merge && !ok {
			all[key] = value
		}
	}
	return all
}

// alone returns the reason for which the kubelet rejects one setting, or "" if it accepts it.
func (w *settingsWorld) alone(field, key string) string {
	one := func(all map[string]string) map[string]string {
		value, ok := all[key]
		if !ok {
			return nil
		}
		return map[string]string{key: value}
	}
	var err error
	switch field {
	case hardField:
		_, err = kubelet.ParseThresholdConfig(nil, one(w.hard()), nil, nil, nil)
	case softField:
		grace := one(w.Grace)
		if grace != nil {
			grace = map[string]string{key: "1s"}
		}
		_, err = kubelet.ParseThresholdConfig(nil, nil, one(w.Soft), grace, nil)
	case graceField:
		_, err = kubelet.ParseThresholdConfig(nil, nil, nil, one(w.Grace), nil)
	default:
		_, err = kubelet.ParseThresholdConfig(nil, nil, nil, nil, one(w.Reclaim))
	}
	return messageOf(err)
}

func messageOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// parseKubelet reads the settings with the kubelet's functions.
func parseKubelet(_ *testing.T, w *settingsWorld) []judge.Facts {
	f := judge.Facts{}
	enforce := w.Enforce
	if enforce == nil {
		enforce = []string{"pods"}
	}
	all, err := kubelet.ParseThresholdConfig(enforce, w.hard(), w.Soft, w.Grace, w.Reclaim)
	if err == nil {
		f["lenient"] = "read:\n" + strings.Join(w.inOrder(all), "\n")
	} else {
		f["lenient"] = "refused"
	}
	f["strict"] = f["lenient"]
	for field, settings := range w.fields() {
		for key := range settings {
			text := w.alone(field, key)
			f["lenient "+field+"["+key+"]"], f["strict "+field+"["+key+"]"] = text, text
		}
	}
	statusFacts(f, w.Pressed)
	less, equal := map[string]string{}, map[string]string{}
	f["flag <"] = flagText(&less, flag.NewLangleSeparatedMapStringString(&less).Set(w.Flags[0]))
	f["flag ="] = flagText(&equal, flag.NewMapStringString(&equal).Set(w.Flags[1]))
	return []judge.Facts{f}
}

func flagText(all *map[string]string, err error) string {
	if err != nil {
		return "refused: " + err.Error()
	}
	return fmt.Sprint(*all)
}

// inOrder sorts the kubelet's thresholds, which come in random order, into our order: hard
// thresholds, soft thresholds, and copies. It leaves out a threshold if no amount can be below
// it.
func (w *settingsWorld) inOrder(all []kubeletapi.Threshold) (lines []string) {
	place := func(t kubeletapi.Threshold) int { return slices.Index(signalNames(), string(t.Signal)) }
	hard, errHard := kubelet.ParseThresholdConfig(nil, w.hard(), nil, nil, nil)
	soft, errSoft := kubelet.ParseThresholdConfig(nil, nil, w.Soft, w.Grace, nil)
	if errHard != nil || errSoft != nil {
		return []string{"differs when read alone"}
	}
	originals := len(hard) + len(soft)
	byPlace := func(a, b kubeletapi.Threshold) int { return place(a) - place(b) }
	slices.SortStableFunc(all[:len(hard)], byPlace)
	slices.SortStableFunc(all[len(hard):originals], byPlace)
	for i := range all {
		t := &all[i]
		if t.Value.Quantity != nil || t.Value.Percentage > 0 {
			lines = append(lines, fmt.Sprintf("%s<%s grace %s reclaim %s", t.Signal, valueText(&t.Value), t.GracePeriod, valueText(t.MinReclaim)))
		}
	}
	return lines
}

// valueText prints a threshold value of the kubelet. A missing minimum reclaim, a minimum
// reclaim of zero and a minimum reclaim of NaN% are equal: every amount fulfils them.
func valueText(v *kubeletapi.ThresholdValue) string {
	switch {
	case v == nil || v.Quantity != nil && v.Quantity.IsZero() || v.Percentage != v.Percentage:
		return "0"
	case v.Quantity != nil:
		return v.Quantity.String()
	default:
		return strconv.FormatFloat(float64(v.Percentage*100), 'g', 6, 32) + "%"
	}
}

// parseOurs reads the settings with our functions.
func parseOurs(t *testing.T, w *settingsWorld) []judge.Facts {
	t.Helper()
	f := judge.Facts{}
	s := eviction.ThresholdSettings{
		EvictionHard: w.Hard, EvictionSoft: w.Soft, EvictionSoftGracePeriod: w.Grace, EvictionMinimumReclaim: w.Reclaim,
		EnforceNodeAllocatable: w.Enforce, MergeDefaultEvictionSettings: w.Merge, GOOS: w.GOOS,
	}
	before := w.String()
	for _, mode := range []string{"strict", "lenient"} {
		s.Lenient = mode == "lenient"
		all, err := eviction.ParseThresholds(s)
		if err == nil {
			var lines []string
			for _, t := range all {
				reclaim := "0"
				if t.MinReclaim != (eviction.Value{}) {
					reclaim = t.MinReclaim.String()
				}
				lines = append(lines, fmt.Sprintf("%s<%s grace %s reclaim %s", t.Signal, t.Value, t.GracePeriod, reclaim))
			}
			f[mode] = "read:\n" + strings.Join(lines, "\n")
			continue
		}
		f[mode] = "refused"
		for line := range strings.SplitSeq(err.Error(), "\n") {
			rest, ok := strings.CutPrefix(line, "field ")
			require.True(t, ok, line)
			name, text, ok := strings.Cut(rest, "]: ")
			require.True(t, ok, line)
			f[mode+" "+name+"]"] = strings.TrimPrefix(f[mode+" "+name+"]"]+"\n"+text, "\n")
		}
	}
	oursStatusFacts(f, w.Pressed)
	f["policy"] = messageOf(w.Policy.Validate())
	require.Equal(t, before, w.String(), "ParseThresholds must not change the settings")
	for i, name := range []string{"flag <", "flag ="} {
		all, err := [...]func(string) (map[string]string, error){eviction.ParseThresholdFlag, eviction.ParseSettingFlag}[i](w.Flags[i])
		if f[name] = fmt.Sprint(all); err != nil {
			f[name] = "refused: " + err.Error()
		}
	}
	return []judge.Facts{f}
}
