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

// ThresholdSettings are thresholds as the kubelet's configuration has them, all
// by the name of a signal. None of the maps is modified or kept.
type ThresholdSettings struct {
	// EvictionHard has amounts such as 100Mi and 10%; 0% and 100% mean that
	// there is no threshold. Nil is [DefaultEvictionHard], empty is none.
	EvictionHard map[string]string
	// EvictionSoft is the same for thresholds with a grace period, and
	// EvictionSoftGracePeriod has those, such as 1m30s.
	EvictionSoft, EvictionSoftGracePeriod map[string]string
	// EvictionMinimumReclaim is how much more than the threshold is to be
	// available when reclaiming ends, hard and soft.
	EvictionMinimumReclaim map[string]string
	// EnforceNodeAllocatable is as in the kubelet's configuration: "pods" in it
	// makes the hard threshold of memory count below the limit of all pods,
	// too. Nil is "pods", empty is nothing.
	EnforceNodeAllocatable []string
	// MergeDefaultEvictionSettings adds the default of each signal that
	// EvictionHard does not name.
	MergeDefaultEvictionSettings bool
	// GOOS is the operating system whose defaults are meant. Default linux.
	GOOS string
	// Lenient accepts all that the kubelet accepts, and understands it in the
	// same way: amounts such as 100.0%, NaN% and 10%%, a soft grace period of
	// 0s that makes the threshold a hard one, settings that belong to no
	// threshold, and a soft threshold below the hard one.
	Lenient bool
}

// DefaultEvictionHard returns the kubelet's default for the operating system, in
// a new map.
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

// ParseThresholds returns the thresholds that the settings mean, hard ones first,
// each kind in the order in which they are acted upon. Settings with mistakes are
// refused whole; the error names every field.
func ParseThresholds(s ThresholdSettings) ([]Threshold, error) {
	p := parser{ThresholdSettings: s}
	hard := p.thresholds("evictionHard", p.hardSettings())
	soft := p.thresholds("evictionSoft", s.EvictionSoft)
	p.gracePeriods(soft)
	reclaim := p.minReclaims()
	if !s.Lenient {
		p.orphans(hard, soft)
		p.softBelowHard(hard, soft)
		p.outOfReach(hard, reclaim)
		p.outOfReach(soft, reclaim)
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

// A parser collects what is wrong.
type parser struct {
	ThresholdSettings
	errs []error
}

// parsed has one threshold for each signal named; one that is switched off has
// no value.
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

// entries calls yield for each setting of a signal that exists, in order, so that
// errors are.
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
			p.fail(field, string(s), "cannot be set: it is that of nodefs or imagefs, as the filesystems are laid out")
			return
		}
		if !p.Lenient && s == AllocatableMemoryAvailable && p.copiesMemory() {
			p.fail(field, string(s), `cannot be set beside "pods" in enforceNodeAllocatable, which makes it that of memory.available`)
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

// copiesMemory says whether there will be an allocatable threshold of itself.
func (p *parser) copiesMemory() bool {
	return p.EnforceNodeAllocatable == nil || slices.Contains(p.EnforceNodeAllocatable, "pods")
}

// value reads an amount. One that switches a threshold off is the zero value.
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
			return Value{}, nil // nothing is ever below it
		case !p.Lenient && (f == 0 || f == 1):
			return Value{}, fmt.Errorf("%s is not below 100%% and above 0%%: write 0%% for no threshold", text)
		}
		return Value{Fraction: f}, nil
	}
	v, err := p.quantity(text)
	if err == nil && v.Quantity <= 0 {
		return Value{}, fmt.Errorf("eviction threshold %s must be positive: %s", s, text)
	}
	return v, err
}

// isOff reports whether the text means that there is no threshold.
func isOff(text string) bool { return text == "0%" || text == "100%" }

// percentage reads a number with a percent sign behind it. What the kubelet
// accepts beyond plain decimals is hardly ever what was meant.
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
	default: // Value has rounded it up
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
			p.fail("evictionSoftGracePeriod", string(s), "no grace makes the threshold a hard one: move it to evictionHard")
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
			return // never anything more than the threshold
		case strings.HasSuffix(text, "%") && v.Fraction <= 0:
			p.fail(field, string(s), "eviction percentage minimum reclaim %s must be positive: %s", s, text)
		case v.Quantity < 0:
			p.fail(field, string(s), "negative eviction minimum reclaim specified for %s", s)
		case !p.Lenient && v.Fraction > 1:
			p.fail(field, string(s), "%s of what there is can never be available", text)
		}
		if v.Quantity != 0 || v.Fraction != 0 {
			all[s] = v
		}
	})
	return all
}

// orphans finds settings that belong to no threshold.
func (p *parser) orphans(hard, soft parsed) {
	p.entriesThatExist(p.EvictionSoftGracePeriod, func(s Signal) {
		if _, ok := p.EvictionSoft[string(s)]; !ok {
			p.fail("evictionSoftGracePeriod", string(s), "there is no soft threshold of this signal")
		}
	})
	p.entriesThatExist(p.EvictionMinimumReclaim, func(s Signal) {
		_, isHard := hard[s]
		_, isSoft := soft[s]
		if _, named := p.EvictionHard[string(s)]; !isHard && !isSoft && !named {
			p.fail("evictionMinimumReclaim", string(s), "there is no threshold of this signal")
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

// softBelowHard finds soft thresholds that can't be met before the hard one is.
// An amount and a percentage can't be compared before the capacity is known.
func (p *parser) softBelowHard(hard, soft parsed) {
	for _, s := range allSignals() {
		h, v := hard[s].Value, soft[s].Value
		if h == (Value{}) || v == (Value{}) || (h.Fraction == 0) != (v.Fraction == 0) {
			continue
		}
		if v.Fraction < h.Fraction || v.Quantity < h.Quantity || v.Fraction == h.Fraction && v.Quantity == h.Quantity {
			p.fail("evictionSoft", string(s), "%s is not above the hard threshold %s and would never count", v, h)
		}
	}
}

// outOfReach finds minimum reclaims that, on top of their threshold, are more than
// there can be: once it is met, no eviction would ever be the last.
func (p *parser) outOfReach(all parsed, reclaim map[Signal]Value) {
	for _, t := range all.inOrder() {
		if r := reclaim[t.Signal]; t.Value.Fraction > 0 && r.Fraction > 0 && r.Fraction <= 1 && t.Value.Fraction+r.Fraction >= 1 {
			p.fail("evictionMinimumReclaim", string(t.Signal), "%s above the threshold %s can never be available", r, t.Value)
		}
	}
}

// withAllocatable adds a copy of each hard threshold of memory for the limit of
// all pods together.
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

// ParseThresholdFlag reads what the kubelet's flags eviction-hard and
// eviction-soft have: "memory.available<100Mi,nodefs.available<10%".
func ParseThresholdFlag(flag string) (map[string]string, error) { return parseFlag(flag, "<") }

// ParseSettingFlag reads what the kubelet's flags eviction-soft-grace-period and
// eviction-minimum-reclaim have: "memory.available=1m30s".
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
			errs = append(errs, fmt.Errorf("%s is there twice", signal))
		}
		all[signal] = value
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return all, nil
}
