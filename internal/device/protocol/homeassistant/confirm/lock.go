package confirm

// locks has services of locks and alarm panels. Codes are never shown.
var locks = table{
	"lock.lock":   {becomes("locked"), only("code")},
	"lock.unlock": {becomes("unlocked", "open"), only("code")},
	"lock.open":   {becomes("open"), only("code")},

	"alarm_control_panel.alarm_disarm":            {becomes("disarmed"), only("code")},
	"alarm_control_panel.alarm_arm_home":          {becomes("armed_home"), only("code")},
	"alarm_control_panel.alarm_arm_away":          {becomes("armed_away"), only("code")},
	"alarm_control_panel.alarm_arm_night":         {becomes("armed_night"), only("code")},
	"alarm_control_panel.alarm_arm_vacation":      {becomes("armed_vacation"), only("code")},
	"alarm_control_panel.alarm_arm_custom_bypass": {becomes("armed_custom_bypass"), only("code")},
	// An alarm that is pending sounds when nobody disarms it.
	"alarm_control_panel.alarm_trigger": {becomes("triggered", "pending"), only("code")},
}
