package eviction

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubeparts/kubeparts/internal/quantity"
)

// ThresholdSettings are the eviction settings of the kubelet's configuration, keyed by
// signal name. The maps are neither retained nor modified.
type ThresholdSettings struct {
	// EvictionHard has the hard thresholds: amounts such as 100Mi and 10%. 0% and 100%
	// disable a threshold. Nil means [DefaultEvictionHard], empty means no thresholds.
	EvictionHard map[string]string
	// EvictionSoft has the soft thresholds and EvictionSoftGracePeriod their grace
	// periods, such as 1m30s.
	EvictionSoft, EvictionSoftGracePeriod map[string]string
	// EvictionMinimumReclaim is how much more than the threshold must be available until a
	// due threshold is no longer due. It applies to hard and soft thresholds.
	EvictionMinimumReclaim map[string]string
	// EnforceNodeAllocatable is the kubelet's setting with this name. If it contains
	// "pods", the hard memory threshold also applies to the memory limit of all pods
	// together. Nil means "pods", empty means that the threshold applies only to the node.
	EnforceNodeAllocatable []string
	// MergeDefaultEvictionSettings adds the default for each signal that EvictionHard
	// does not contain.
	MergeDefaultEvictionSettings bool
	// GOOS is the operating system whose defaults are used. Default linux.
	GOOS string
	// Lenient accepts everything that the kubelet accepts, with the same meaning. Examples are
	// amounts such as 100.0%, NaN% and 10%%, settings without a threshold, and a soft threshold
	// below the hard one. A soft grace period of 0s then makes the threshold a hard one.
	Lenient bool
}

// DefaultEvictionHard returns the kubelet's defaults for the operating system, in a new
// map.
func DefaultEvictionHard(goos string) map[string]string {
	all := map[string]string{
		string(MemoryAvailable):  "100Mi",
		string(NodeFSAvailable):  "10%",
		string(ImageFSAvailable): "15%",
	}
	switch goos {
	case "", "linux":
		all[string(NodeFSInodesFree)] = "5%"
		all[string(ImageFSInodesFree)] = "5%"
	case "windows":
		all[string(MemoryAvailable)] = "500Mi"
	}
	return all
}

// ParseThresholds returns the thresholds of the settings: first the hard thresholds, then the
// soft thresholds, and then the copies for the memory limit of all pods. The hard thresholds are
// in the order in which [PlanEviction] acts on them, and so are the soft thresholds. If a setting
// is invalid, it returns no thresholds, and an error that names every invalid field.
func ParseThresholds(s ThresholdSettings) ([]Threshold, error) {
	p := parser{ThresholdSettings: s}
	hard := p.thresholds("evictionHard", p.hardSettings())
	soft := p.thresholds("evictionSoft", s.EvictionSoft)
	p.gracePeriods(soft)
	reclaim := p.minReclaims()
	if !s.Lenient {
		p.checkUnusedSettings(hard, soft)
		p.checkSoftBelowHard(hard, soft)
		p.checkUnreachable(hard, reclaim)
		p.checkUnreachable(soft, reclaim)
	}
	if len(p.errs) > 0 {
		return nil, errors.Join(p.errs...)
	}
	all := slices.Concat(hard.inOrder(), soft.inOrder())
	for i := range all {
		all[i].MinReclaim = reclaim[all[i].Signal]
	}
	return p.withAllocatable(all), nil
}

// parser parses settings and collects errors.
type parser struct {
	ThresholdSettings
	errs []error
}

// parsed has one threshold for each configured signal. A disabled threshold has a zero
// Value.
type parsed map[Signal]Threshold

func (p parsed) inOrder() (all []Threshold) {
	for _, s := range allSignals() {
		if t, ok := p[s]; ok && t.Value != (Value{}) {
			all = append(all, t)
		}
	}
	return all
}

func (p *parser) fail(field, key, format string, args ...any) {
	p.errs = append(p.errs, fmt.Errorf("field %s[%s]: %s", field, key, fmt.Sprintf(format, args...)))
}

func (p *parser) hardSettings() map[string]string {
	if p.EvictionHard == nil {
		return DefaultEvictionHard(p.GOOS)
	}
	all := maps.Clone(p.EvictionHard)
	if p.MergeDefaultEvictionSettings {
		for signal, value := range DefaultEvictionHard(p.GOOS) {
			if _, ok := all[signal]; !ok {
				all[signal] = value
			}
		}
	}
	return all
}

// entries calls yield for each setting, in the order of the signal names, so that the
// errors are sorted as well. A setting of a signal that does not exist is an error.
func (p *parser) entries(field string, all map[string]string, yield func(s Signal, value string)) {
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if Signal(key).index() < 0 {
			p.fail(field, key, "unsupported eviction signal %s", key)
			continue
		}
		yield(Signal(key), all[key])
	}
}

func (p *parser) thresholds(field string, settings map[string]string) parsed {
	all := parsed{}
	p.entries(field, settings, func(s Signal, text string) {
		if !p.Lenient && (s == ContainerFSAvailable || s == ContainerFSInodesFree) {
			p.fail(field, string(s), "cannot be set: it follows from the nodefs or imagefs threshold, depending on the filesystem layout")
			return
		}
		if !p.Lenient && s == AllocatableMemoryAvailable && p.copiesMemory() {
			p.fail(field, string(s), `cannot be set with "pods" in enforceNodeAllocatable, which copies the threshold of memory.available`)
			return
		}
		v, err := p.value(s, text)
		if err != nil {
			p.fail(field, string(s), "%v", err)
			return
		}
		all[s] = Threshold{Signal: s, Value: v}
	})
	return all
}

// copiesMemory reports whether the hard memory threshold is copied to
// allocatableMemory.available.
func (p *parser) copiesMemory() bool {
	return p.EnforceNodeAllocatable == nil || slices.Contains(p.EnforceNodeAllocatable, "pods")
}

// value parses an amount. For a disabled threshold it returns the zero Value.
func (p *parser) value(s Signal, text string) (Value, error) {
	if isOff(text) {
		return Value{}, nil
	}
	if strings.HasSuffix(text, "%") {
		f, err := p.percentage(text)
		switch {
		case err != nil:
			return Value{}, err
		case f < 0:
			return Value{}, fmt.Errorf("eviction percentage threshold %s must be >= 0%%: %s", s, text)
		case f > 1:
			return Value{}, fmt.Errorf("eviction percentage threshold %s must be <= 100%%: %s", s, text)
		case math.IsNaN(float64(f)):
			return Value{}, nil // nothing is less than NaN: the threshold is never met
		case !p.Lenient && (f == 0 || f == 1):
			return Value{}, fmt.Errorf("%s is not between 0%% and 100%%: use 0%% for no threshold", text)
		}
		return Value{Fraction: f}, nil
	}
	v, err := p.quantity(text)
	if err == nil && v.Quantity <= 0 {
		return Value{}, fmt.Errorf("eviction threshold %s must be positive: %s", s, text)
	}
	return v, err
}

// isOff reports whether the text disables a threshold.
func isOff(text string) bool { return text == "0%" || text == "100%" }

// percentage parses a number with a percent sign. If Lenient is not set, it accepts only plain
// decimals: the other forms that the kubelet accepts are hardly ever intended.
func (p *parser) percentage(text string) (float32, error) {
	number := strings.TrimSuffix(text, "%")
	if p.Lenient {
		number = strings.TrimRight(text, "%")
	} else if strings.Trim(number, "0123456789.") != "" {
		return 0, fmt.Errorf("%q is not a percentage such as 10%% or 2.5%%", text)
	}
	f, err := strconv.ParseFloat(number, 32)
	if err != nil {
		return 0, fmt.Errorf("%q is not a percentage such as 10%% or 2.5%%", text)
	}
	return float32(f) / 100, nil
}

func (p *parser) quantity(text string) (Value, error) {
	q, err := quantity.Parse(text)
	if err != nil {
		return Value{}, fmt.Errorf("%q is not an amount: %w", text, err)
	}
	v := Value{Quantity: q.Value(), Format: q.Format}
	switch {
	case q.CmpInt64(v.Quantity) == 0:
		return v, nil
	case !p.Lenient:
		return Value{}, fmt.Errorf("%q is not a whole number that fits into 64 bits", text)
	case q.CmpInt64(math.MaxInt64) > 0:
		v.Quantity = math.MaxInt64
	case q.CmpInt64(math.MinInt64) < 0:
		v.Quantity = math.MinInt64
	default: // q.Value has rounded it up
	}
	v.Text = q.String()
	return v, nil
}

func (p *parser) gracePeriods(soft parsed) {
	p.entries("evictionSoftGracePeriod", p.EvictionSoftGracePeriod, func(s Signal, text string) {
		grace, err := time.ParseDuration(text)
		switch {
		case err != nil:
			p.fail("evictionSoftGracePeriod", string(s), "%q is not a duration such as 1m30s", text)
		case grace < 0:
			p.fail("evictionSoftGracePeriod", string(s), "invalid eviction grace period specified: %s, must be a positive value", text)
		case grace == 0 && !p.Lenient:
			p.fail("evictionSoftGracePeriod", string(s), "a grace period of 0 makes the threshold hard: move the threshold to evictionHard")
		}
		if t, ok := soft[s]; ok {
			t.GracePeriod = grace
			soft[s] = t
		}
	})
	for _, s := range allSignals() {
		_, isRead := soft[s]
		_, hasGrace := p.EvictionSoftGracePeriod[string(s)]
		if isRead && !isOff(p.EvictionSoft[string(s)]) && !hasGrace {
			p.fail("evictionSoft", string(s), "grace period must be specified for the soft eviction threshold %s", s)
		}
	}
}

func (p *parser) minReclaims() map[Signal]Value {
	const field = "evictionMinimumReclaim"
	all := map[Signal]Value{}
	p.entries(field, p.EvictionMinimumReclaim, func(s Signal, text string) {
		var v Value
		var err error
		if strings.HasSuffix(text, "%") {
			v.Fraction, err = p.percentage(text)
		} else {
			v, err = p.quantity(text)
		}
		switch {
		case err != nil:
			p.fail(field, string(s), "%v", err)
		case math.IsNaN(float64(v.Fraction)):
			return // NaN: no minimum reclaim
		case strings.HasSuffix(text, "%") && v.Fraction <= 0:
			p.fail(field, string(s), "eviction percentage minimum reclaim %s must be positive: %s", s, text)
		case v.Quantity < 0:
			p.fail(field, string(s), "negative eviction minimum reclaim specified for %s", s)
		case !p.Lenient && v.Fraction > 1:
			p.fail(field, string(s), "%s of the capacity can never be available", text)
		}
		if v.Quantity != 0 || v.Fraction != 0 {
			all[s] = v
		}
	})
	return all
}

// checkUnusedSettings reports grace periods of signals that have no soft threshold, and minimum
// reclaims of signals that have no threshold.
func (p *parser) checkUnusedSettings(hard, soft parsed) {
	p.entriesThatExist(p.EvictionSoftGracePeriod, func(s Signal) {
		if _, ok := p.EvictionSoft[string(s)]; !ok {
			p.fail("evictionSoftGracePeriod", string(s), "this signal has no soft threshold")
		}
	})
	p.entriesThatExist(p.EvictionMinimumReclaim, func(s Signal) {
		_, isHard := hard[s]
		_, isSoft := soft[s]
		if _, named := p.EvictionHard[string(s)]; !isHard && !isSoft && !named {
			p.fail("evictionMinimumReclaim", string(s), "this signal has no threshold")
		}
	})
}

func (p *parser) entriesThatExist(all map[string]string, yield func(Signal)) {
	for _, s := range allSignals() {
		if _, ok := all[string(s)]; ok {
			yield(s)
		}
	}
}

// checkSoftBelowHard reports soft thresholds that cannot be met before the hard threshold
// of the same signal is met. It does not compare an amount with a percentage, because the
// capacity is unknown.
func (p *parser) checkSoftBelowHard(hard, soft parsed) {
	for _, s := range allSignals() {
		h, v := hard[s].Value, soft[s].Value
		if h == (Value{}) || v == (Value{}) || (h.Fraction == 0) != (v.Fraction == 0) {
			continue
		}
		if v.Fraction < h.Fraction || v.Quantity < h.Quantity || v.Fraction == h.Fraction && v.Quantity == h.Quantity {
			p.fail("evictionSoft", string(s), "%s is not above the hard threshold %s and would have no effect", v, h)
		}
	}
}

// checkUnreachable reports minimum reclaims that, added to their threshold, are 100% or more. If
// such a threshold were met, evictions would never stop. checkUnreachable compares only
// percentages, because the capacity is unknown.
func (p *parser) checkUnreachable(all parsed, reclaim map[Signal]Value) {
	for _, t := range all.inOrder() {
		if r := reclaim[t.Signal]; t.Value.Fraction > 0 && r.Fraction > 0 && r.Fraction <= 1 && t.Value.Fraction+r.Fraction >= 1 {
			p.fail("evictionMinimumReclaim", string(t.Signal), "%s above the threshold %s can never be available", r, t.Value)
		}
	}
}

// withAllocatable adds a copy of each hard memory threshold for
// allocatableMemory.available, the memory limit of all pods together.
func (p *parser) withAllocatable(all []Threshold) []Threshold {
	if !p.copiesMemory() {
		return all
	}
	for _, t := range slices.Clone(all) {
		if t.Signal == MemoryAvailable && t.Hard() {
			t.Signal = AllocatableMemoryAvailable
			all = append(all, t)
		}
	}
	return all
}

// ParseThresholdFlag parses the value of the kubelet's flags eviction-hard and
// eviction-soft: "memory.available<100Mi,nodefs.available<10%".
func ParseThresholdFlag(flag string) (map[string]string, error) { return parseFlag(flag, "<") }

// ParseSettingFlag parses the value of the kubelet's flags eviction-soft-grace-period and
// eviction-minimum-reclaim: "memory.available=1m30s".
func ParseSettingFlag(flag string) (map[string]string, error) { return parseFlag(flag, "=") }

func parseFlag(flag, separator string) (map[string]string, error) {
	all := map[string]string{}
	var errs []error
	for part := range strings.SplitSeq(flag, ",") {
		if part == "" {
			continue
		}
		signal, value, ok := strings.Cut(part, separator)
		signal, value = strings.TrimSpace(signal), strings.TrimSpace(value)
		_, twice := all[signal]
		switch {
		case !ok:
			errs = append(errs, fmt.Errorf("malformed pair %q, expect string%sstring", part, separator))
		case twice:
			errs = append(errs, fmt.Errorf("%s is set twice", signal))
		}
		all[signal] = value
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return all, nil
}
