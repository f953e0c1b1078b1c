package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// parseAny reads a value as the file has it: a string as a variable would have
// it, or a number.
func (k Key) parseAny(v any) (int64, error) {
	if _, ok := v.(string); k.Kind == Text && !ok && v != false {
		return 0, fmt.Errorf("%v is not a text", v)
	}
	switch v := v.(type) {
	case string:
		return k.Parse(v)
	case int64:
		if k.Kind == Duration && v != 0 {
			return 0, errors.New("a duration needs a unit")
		}
		return k.Parse(strconv.FormatInt(v, 10))
	case float64:
		return k.Parse(strconv.FormatFloat(v, 'f', -1, 64))
	case bool:
		if !v {
			return k.Parse("off")
		}
		if k.Kind == Flag {
			return 1, nil
		}
	}
	return 0, fmt.Errorf("%v is not a value for it", v)
}

// Parse reads a value as a variable or a flag has it. "off" is 0.
func (k Key) Parse(text string) (int64, error) {
	text = strings.TrimSpace(text)
	if text == "off" || text == "none" {
		text = "0"
	}
	if k.Kind == Text {
		return 0, nil
	}
	var v int64
	var err error
	switch k.Kind {
	case Flag:
		switch text {
		case "on", "true", "1":
			v = 1
		case "0", "false":
		default:
			err = fmt.Errorf("%q is neither on nor off", text)
		}
	case Count:
		v, err = strconv.ParseInt(text, 10, 64)
		if err != nil {
			err = fmt.Errorf("%q is not a whole number", text)
		}
	case Size:
		v, err = parseSize(text)
	case Duration:
		v, err = parseDuration(text)
	case Cores:
		var f float64
		f, err = strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(f) || f > 1<<20 {
			err = fmt.Errorf("%q is not a number of processors", text)
		}
		if err == nil && f != 0 && f < 0.01 {
			err = fmt.Errorf("%q is too little to run anything", text)
		}
		v = int64(math.Round(f * 1000))
	}
	switch {
	case err != nil:
		return 0, err
	case v < 0:
		return 0, fmt.Errorf("%q is less than nothing", text)
	case v == 0 && k.Zero == "":
		return 0, errors.New("it cannot be switched off")
	}
	return v, nil
}

// units of sizes. A bare letter means the binary unit, as everywhere in conch.
var units = []struct {
	name  string
	shift uint
}{{"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}, {"K", 10}, {"M", 20}, {"G", 30}, {"T", 40}, {"B", 0}, {"", 0}}

func parseSize(text string) (int64, error) {
	for _, u := range units {
		n, ok := strings.CutSuffix(text, u.name)
		if !ok {
			continue
		}
		f, err := strconv.ParseFloat(strings.TrimSpace(n), 64)
		if err != nil || math.IsNaN(f) {
			break
		}
		if f *= float64(int64(1) << u.shift); f >= 1<<62 {
			return 0, fmt.Errorf("%q is too large", text)
		}
		return int64(f), nil
	}
	return 0, fmt.Errorf("%q is not a size", text)
}

// ParseDuration reads 90s, 15m, 24h and also 30d.
func ParseDuration(text string) (time.Duration, error) {
	v, err := parseDuration(text)
	return time.Duration(v), err
}

func parseDuration(text string) (int64, error) {
	if n, ok := strings.CutSuffix(text, "d"); ok {
		f, err := strconv.ParseFloat(n, 64)
		if err != nil || math.IsNaN(f) || math.Abs(f) > 36500 {
			return 0, fmt.Errorf("%q is not a duration", text)
		}
		return int64(f * 24 * float64(time.Hour)), nil
	}
	if text == "0" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration", text)
	}
	return int64(d), nil
}

// example says how a value is written.
func (k Key) example() string {
	s := map[Kind]string{Count: "a number such as 100", Size: "a size such as 512MiB or 4GiB", Duration: "a duration such as 90s, 24h or 30d", Cores: "a number such as 1.5", Text: "a text in quotes", Flag: "true"}[k.Kind]
	if k.Zero != "" {
		s += ", or off"
	}
	return s
}

// Format writes a value as it would be set.
func (k Key) Format(v int64) string {
	if v == 0 && k.Zero != "" {
		return "off"
	}
	switch k.Kind {
	case Flag:
		return "on"
	case Size:
		for i := 3; i >= 0; i-- {
			if v >= 1<<units[i].shift && v%(1<<units[i].shift) == 0 {
				return strconv.FormatInt(v>>units[i].shift, 10) + units[i].name
			}
		}
	case Duration:
		d := time.Duration(v)
		switch {
		case d >= 48*time.Hour && d%(24*time.Hour) == 0:
			return strconv.FormatInt(int64(d/(24*time.Hour)), 10) + "d"
		case d%time.Hour == 0:
			return strconv.FormatInt(int64(d/time.Hour), 10) + "h"
		}
		return d.String()
	case Cores:
		return strconv.FormatFloat(float64(v)/1000, 'f', -1, 64)
	}
	return strconv.FormatInt(v, 10)
}
