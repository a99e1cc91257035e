// Package quantity parses resource quantities such as 100Mi from untrusted text.
package quantity

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// maxExponent and maxDigits exceed what a quantity can represent.
const (
	maxExponent = 99 // positive or negative
	maxDigits   = 200
)

// Parse is like [resource.ParseQuantity], for untrusted text. With an exponent such as that
// of 1e-1000000000, or millions of digits, [resource.ParseQuantity] would compute for
// minutes.
func Parse(text string) (resource.Quantity, error) {
	if err := Check(text); err != nil {
		return resource.Quantity{}, err
	}
	return resource.ParseQuantity(text)
}

// Check returns an error if the text must not be passed to [resource.ParseQuantity]. It
// does not check whether the text is a valid quantity.
func Check(text string) error {
	text = strings.TrimSpace(text)
	if digits := len(text) - len(strings.TrimLeft(text, "+-.0123456789")); digits > maxDigits {
		return fmt.Errorf("%.40q has %d digits, too many for a quantity", text, digits)
	}
	i := strings.LastIndexAny(text, "eE")
	if i < 0 {
		return nil
	}
	exponent, err := strconv.Atoi(text[i+1:]) // 0 for 1E, 1Ei and invalid text
	if errors.Is(err, strconv.ErrRange) || exponent > maxExponent || exponent < -maxExponent {
		return fmt.Errorf("the exponent of %.40q is out of range", text)
	}
	return nil
}
