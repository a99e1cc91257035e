// Package quantity parses resource quantities such as 100Mi from untrusted text.
package quantity

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// maxExponent and maxDigits are more than any valid quantity needs.
const (
	maxExponent = 99 // positive or negative
	maxDigits   = 200
)

// Parse is like [resource.ParseQuantity], but also safe for untrusted text.
// [resource.ParseQuantity] would compute for minutes if the text had an exponent as in
// 1e-1000000000, or millions of digits.
func Parse(text string) (resource.Quantity, error) {
	if err := Check(text); err != nil {
		return resource.Quantity{}, err
	}
	return resource.ParseQuantity(text)
}

// Check returns an error if the caller must not pass the text to [resource.ParseQuantity].
// It does not check whether the text is a valid quantity.
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
