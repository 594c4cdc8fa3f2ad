"""When the rules of demo/alerts.yml fire and when not, for promtool test rules.

A case is a name, series, and what fires at some minutes: all alerts, each with its
instance where it has one, so none fires for another's reason; None: nothing is even
pending. Series have a value for each minute: 0+60x30 is a counter that grows by one a
second. Where nothing else is said they are snowshed's, of one cache or lock, on the
instance a."""

CASES = [
    ("a healthy service, under load and with a few failures below every threshold",
     {"redis_up": "1x60", "hits_total": "0+6000x60", "negative_hits_total": "0+600x60",
      "misses_total": "0+6500x60", "loaded_keys_total": "0+6000x60",
      "load_failures_total": "0+290x60", "load_seconds_sum": "0+210x60",
      "source_loads_limit": "4x60", "hit_seconds_count": "0+6600x60",
      "miss_seconds_count": "0+6500x60", "errors_timeout_total": "0+125x60",
      "errors_busy_total": "9x60", "errors_redis_total": "0+3x60",
      "errors_other_total": "0+2x60", "unpublished_total": "9x60",
      "invalidation_failures_total": "9x60", "invalidations_dropped_total": "9x60",
      "undelivered": "0x20 1x4 0x36", "loads_total": "0+600x60",
      "fleet_waits_total": "0+290x60", "fleet_failures_total": "9x60",
      "corrupt_entries_total": "9x60", "foreign_entries_total": "0x20 5x40",
      "polls_total": "0+100x60", "pushes_total": "0+1x60",
      "leases_taken_over_total": "0x20 5x40", "lock_acquired_total": "0+60x60",
      "lock_timeouts_total": "0+55x60", "lock_failures_total": "9x60",
      "lock_lost_total": "9x60", "lock_renewal_failures_total": "9x60", "up": "1x60",
      'hotitems_requests_total{status="2xx"}': "0+6000x60",
      'hotitems_requests_total{status="5xx"}': "0+55x60",
      'hotitems_request_seconds_bucket{le="0.1"}': "0+5900x60",
      'hotitems_request_seconds_bucket{le="0.5"}': "0+6050x60",
      'hotitems_request_seconds_bucket{le="+Inf"}': "0+6055x60"},
     {30: None, 60: None}),
    ("one of two instances loses Redis for three minutes",
     {"redis_up": "1x10 0x3 1x10", "redis_up@b": "1x25"},
     {11: "", 12: "SnowshedRedisDown@a", 20: ""}),
    ("Redis is full", {"unpublished_total": "0x5 0+6x20"},
     {10: "", 15: "SnowshedNotStored@a"}),
    ("one invalidation fails, which is told at once",
     {"invalidation_failures_total": "0x9 1x20"},
     {9: None, 10: "SnowshedInvalidationsFailing@a", 20: None}),
    ("an invalidation is given up, which is told at once",
     {"invalidations_dropped_total": "0x9 1x20"},
     {9: None, 10: "SnowshedInvalidationsLost@a", 20: None}),
    ("invalidations are kept and not delivered, and no others fail",
     {"invalidation_failures_total": "3x40", "undelivered": "0x9 3x20 0x10",
      "undelivered@b": "0x40"},
     {14: "", 15: "SnowshedInvalidationsWaiting@a", 35: None}),
    ("most loads wait for the fleet, then Redis does not say what it allows",
     {"loads_total": "0+600x60", "fleet_waits_total": "0x9 0+500x20 10000x30",
      "fleet_failures_total": "0x39 0+60x20"},
     {13: "", 25: "SnowshedFleetAtLimit", 40: "", 50: "SnowshedFleetUnbounded@a"}),
    ("changes are not announced", {"polls_total": "0+20x60", "pushes_total": "7x60"},
     {15: "", 40: "SnowshedPushesMissing@a"}),
    ("an entry is damaged, and another program writes entries",
     {"corrupt_entries_total": "0x9 1x40", "foreign_entries_total": "0x9 0+4x9 36x40"},
     {15: "SnowshedCorruptEntries@a SnowshedForeignEntries@a", 40: None}),
    ("the cache was lost, and stays empty",
     {"hits_total": "0+6000x9 54000+600x30", "negative_hits_total": "0+60x40",
      "misses_total": "0+60x9 540+6000x30"},
     {18: "", 30: "SnowshedHitRatioCollapsed"}),
    ("hardly any traffic has no hit ratio worth an alert",
     {"hits_total": "0x40", "negative_hits_total": "0x40", "misses_total": "0+30x40"},
     {30: None}),
    ("the database is slow, loads are at their limit and callers are refused",
     {"load_seconds_sum": "0+240x40", "source_loads_limit": "4x40",
      "load_seconds_sum@b": "0+24x40", "source_loads_limit@b": "4x40",
      "errors_busy_total": "0x9 0+6x30"},
     {20: "SnowshedLoadsAtLimit@a SnowshedCallersRefused@a"}),
    ("breakers that are open for a moment, and stay so later",
     {"source_breaker": "0 2 0 0 2 1 2 2 1 2 2 2 2", "source_breaker@b": "0x12",
      "redis_breaker@b": "0 2 0 0 2 1 2 2 1 2 2 2 2", "redis_breaker": "0x12"},
     {3: "", 10: "SnowshedBreakerOpen@a SnowshedRedisBreakerOpen@b"}),
    ("the database refuses every tenth key",
     {"loaded_keys_total": "0+600x40", "load_failures_total": "0+60x40"},
     {2: "", 10: "SnowshedLoadsFailing"}),
    ("callers run out of time, others are refused by Redis",
     {"hit_seconds_count": "0+5400x40", "miss_seconds_count": "0+600x40",
      "errors_timeout_total": "0+120x40", "errors_redis_total": "0x40",
      "errors_other_total": "0+60x40"},
     {4: "", 15: "SnowshedCallersTimingOut SnowshedCallsFailing"}),
    ("loaders die again and again",
     {"leases_taken_over_total": "0+1x40", "leases_taken_over_total@b": "0x40"},
     {30: "SnowshedLoadersDying"}),
    ("a lock cannot be renewed, then is lost, and Redis cannot be asked for it",
     {"lock_renewal_failures_total": "0x9 0+6x30", "lock_lost_total": "0x9 1x40",
      "lock_failures_total": "0x9 0+6x30"},
     {10: "SnowshedLockLost@a",
      15: "SnowshedLockLost@a SnowshedLockRenewalsFailing@a SnowshedLocksUnavailable@a"}),
    ("most wait for a lock in vain",
     {"lock_acquired_total": "0+60x40", "lock_timeouts_total": "0+90x40"},
     {10: "", 20: "SnowshedLockContended"}),
    ("the service fails, is slow, and one instance is gone",
     {"up": "1x40", "up@b": "1x9 0x30",
      'hotitems_requests_total{status="2xx"}': "0+6000x40",
      'hotitems_requests_total{status="5xx"}': "0+120x40",
      'hotitems_request_seconds_bucket{le="0.5"}': "0+5900x40",
      'hotitems_request_seconds_bucket{le="1"}': "0+6120x40",
      'hotitems_request_seconds_bucket{le="+Inf"}': "0+6120x40"},
     {9: "HotitemsErrors", 20: "HotitemsErrors HotitemsSlow HotitemsDown@b"}),
]


def series(name):
    name, _, instance = name.partition("@")
    metric, _, labels = name.partition("{")
    own = ['job="hotitems"', f'instance="{instance or "a"}"']
    if labels:
        own.append(labels.rstrip("}"))
    if not metric.startswith(("up", "hotitems_")):
        own.append('lock="item"' if metric.startswith("lock_") else 'cache="item"')
        metric = "snowshed_" + metric
    return f"{metric}{{{', '.join(own)}}}"


def expectation(minute, alerts):
    state = "" if alerts is None else '{alertstate="firing"}'
    labels = [alert.partition("@") for alert in (alerts or "").split()]
    return {"expr": f"group by (alertname, instance) (ALERTS{state})",
            "eval_time": f"{minute}m", "exp_samples": [
                {"labels": f'{{alertname="{name}"' + (f', instance="{i}"' if i else "") + "}",
                 "value": 1} for name, _, i in labels]}


def tests_of(rule_file):
    """What promtool reads, and the names of all alerts that fire in it."""
    fired = {alert.partition("@")[0] for _, _, expected in CASES
             for alerts in expected.values() for alert in (alerts or "").split()}
    return {"rule_files": [rule_file], "evaluation_interval": "1m", "tests": [
        {"name": name, "interval": "1m",
         "input_series": [{"series": series(s), "values": v} for s, v in values.items()],
         "promql_expr_test": [expectation(*e) for e in expected.items()]}
        for name, values, expected in CASES]}, fired
